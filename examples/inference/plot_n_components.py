"""
How many components? Grid search by held-out score
==================================================

Three directions are specific to the target. ``score`` is the gain in log-likelihood of held-out rows, so it can be
compared between numbers of components. It rises for every real component and falls when components describe noise,
while the same quantity on the training rows keeps rising. ``GridSearchCV`` selects the maximum.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from standout import DPCA
from standout.errors import StandoutWarning

rng = np.random.default_rng(0)
scale = np.ones(20)
scale[:3] = [2.5, 2.0, 1.7]  # the background has a standard deviation of one everywhere
X = rng.normal(size=(450, 20))
y = np.repeat(["patient", "control"], [200, 250])
X[y == "patient"] *= scale
X = X @ np.linalg.qr(rng.normal(size=(20, 20)))[0]  # no single feature shows it

numbers = np.arange(1, 11)
folds = StratifiedKFold(5, shuffle=True, random_state=0)
with warnings.catch_warnings():
    # Noise components and few rows are the point of this example.
    warnings.simplefilter("ignore", StandoutWarning)
    search = GridSearchCV(
        DPCA(background_label="control", shrinkage=None),
        {"n_components": numbers},
        cv=folds,
        return_train_score=True,
    ).fit(X, y)
print(f"selected: {search.best_params_['n_components']} components")

figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
results = search.cv_results_
ax.plot(
    numbers, results["mean_train_score"], "o-", color="#D55E00", label="rows used for the fit"
)
held_out, error = results["mean_test_score"], results["std_test_score"] / np.sqrt(5)
ax.errorbar(
    numbers, held_out, yerr=error, fmt="D-", color="#0072B2", capsize=4, label="held-out rows"
)
ax.axvline(
    search.best_params_["n_components"], color="#6b7280", linestyle=":", label="selected"
)
ax.set(
    xlabel="number of components", ylabel="score: log-likelihood gain per row", xticks=numbers
)
ax.set_title("Three components are real; more of them only fit noise")
ax.legend(frameon=False)
plt.show()

# %%
# What not to conclude
# --------------------
# The selected number need not be the true one: near the maximum, numbers differ by less than the error of the score.
# ``best_score_`` is slightly optimistic, because the maximum was selected. And a component that lowers the score may be
# real, but too weak to be estimated from these rows. ``DPCA(n_components="auto")`` counts components by a sequential
# test instead. See :doc:`/howto/scikit-learn`.
