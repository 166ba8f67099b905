"""A real Spark on this machine, for the tests that need one, or the reason why there is none."""

import atexit
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import standout


@cache
def why_not():
    """Return why Spark cannot run here, or None."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "pyspark is not installed (pip install 'standout[spark]')"
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return "Java is absent (Debian: apt-get install openjdk-17-jre-headless)"
    printed = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', printed)
    if found is None or int(found[1]) < 17:
        return f"Spark needs Java 17 or newer, and this is: {printed.partition(chr(10))[0]}"
    return None


def spark_session():
    """Return the session of this process, or skip the test with the reason."""
    if (reason := why_not()) is not None:
        pytest.skip(f"left out: Spark tests, because {reason}")
    return _started()


@cache
def _started():
    from pyspark.sql import SparkSession

    # The workers take python and its path from here.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    home = str(Path(standout.__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")]))
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "600m",
        # Compiling for speed takes longer than these small jobs do.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    # Two cores; a task may fail three times before the job does.
    session = SparkSession.builder.master("local[2,4]").config(map=options).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    atexit.register(session.stop)
    return session
