"""The size of the library and the length of the road through it: limits that keep the source readable."""

import subprocess
import sys
from pathlib import Path

import standout

SOURCE = Path(standout.__file__).parent
MODULES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}
LINES = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}

# The aims are 90 modules and 20,000 lines. New capabilities may raise these limits; nothing else may.
MOST_MODULES = 109
MOST_LINES = 29_399
# A fit of arrays: the numerical road, and the checks of the data that precede it. Comprehensions and generator
# expressions do not count.
CHECKS = {"_effective.py", "_replicates.py", "_table_checks.py"}
MOST_MODULES_OF_THE_ROAD, MOST_FUNCTIONS_OF_THE_ROAD = 14, 73
MOST_FUNCTIONS_OF_THE_CHECKS = 25

SHORT = {"__init__.py", "__main__.py", "_version.py"}

# A new process, so that nothing has been imported, cached or patched by another test.
TRACE = """
import sys
import numpy as np
from pathlib import Path
import standout

source = str(Path(standout.__file__).parent)
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(267, 76)) * np.linspace(3, 1, 76), rng.normal(size=(4000, 76))
standout.DPCA(2).fit(X, background=Y)  # modules are imported before the tracing starts
seen = set()
inner = {"<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"}

def trace(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(source) and code.co_name not in inner:
        seen.add((code.co_filename, code.co_qualname))

estimator = standout.DPCA(2)
sys.setprofile(trace)
estimator.fit(X, background=Y)
sys.setprofile(None)
for file, function in sorted(seen):
    print(Path(file).relative_to(source).as_posix(), function)
"""


def test_the_package_has_few_modules_and_lines():
    assert len(MODULES) <= MOST_MODULES
    assert sum(LINES.values()) <= MOST_LINES


def test_every_module_has_between_60_and_600_lines():
    assert {name: n for name, n in LINES.items() if n < 60 and Path(name).name not in SHORT} == {}
    assert {name: n for name, n in LINES.items() if n > 600} == {}


def test_a_fit_of_arrays_calls_few_functions_in_few_modules():
    done = subprocess.run([sys.executable, "-c", TRACE], capture_output=True, text=True, check=True)
    functions = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    road = [(module, function) for module, function in functions if module not in CHECKS]
    modules = {module for module, _ in road}
    assert len(modules) <= MOST_MODULES_OF_THE_ROAD, sorted(modules)
    assert len(road) <= MOST_FUNCTIONS_OF_THE_ROAD, road
    assert len(functions) - len(road) <= MOST_FUNCTIONS_OF_THE_CHECKS, functions
