"""scikit-learn's own estimator checks, all of them."""

import warnings

from sklearn.utils.estimator_checks import parametrize_with_checks

from standout._dpca import DPCA


@parametrize_with_checks(
    [DPCA(), DPCA(n_components=1, normalize="background", centering="background"), DPCA(axes="signal", mix="minimax")]
)
def test_scikit_learn_estimator_checks_pass(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check(estimator)
