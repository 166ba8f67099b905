"""How the models in this directory were made. They represent files that users have saved; do not regenerate them."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from standout._cpca import CPCA
from standout._dpca import DPCA
from standout._kernel_dpca import KernelDPCA
from standout._model_file import save

HERE = Path(__file__).parent


def main():
    rng = np.random.default_rng(0)
    target = pd.DataFrame(rng.normal(size=(40, 4)) * [1, 4, 1, 2], columns=list("abcd")).round(2)
    background = pd.DataFrame(rng.normal(size=(60, 4)), columns=list("dcba")).round(2)
    chain = sparse.csr_array(np.eye(4, k=1) + np.eye(4, k=-1))
    first, second = background[:35], background[35:].drop(columns="c")
    models = {
        "dpca": DPCA(features="common", graph=chain, mix={"x": 0.5, "y": 0.5}),
        "cpca": CPCA(1, grid=[0, 1.0, 3.0], n_representatives=2, random_state=0),
        "kernel": KernelDPCA(1, n_landmarks=8),
    }
    answers = {}
    for name, model in models.items():
        model.fit(target, background={"x": first, "y": second} if name == "dpca" else background)
        save(model, HERE / f"{name}.standout", about={"made by": "tests/data/format1/make.py"})
        answers[name] = {
            "repr": repr(model),
            "summary": model.summary(),
            "rows": target[:5].to_numpy().tolist(),
            "scores": model.transform(target[:5]).tolist(),
        }
    answers["dpca"]["denoised"] = models["dpca"].denoise(target[:5]).tolist()
    answers["cpca"]["representatives"] = models["cpca"].path_.representative_values.tolist()
    (HERE / "answers.json").write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
