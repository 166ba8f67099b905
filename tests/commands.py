"""Models to compare with and damaged files, for tests of the command line."""

import numpy as np
import pytest

from conftest import NAMES
from helpers import OptionalPackage
from standout._dpca import DPCA

pd = OptionalPackage("pandas")
quiet = pytest.mark.filterwarnings("ignore::standout.errors.StandoutWarning")


def fitted(data, **parameters):
    return DPCA(**parameters).fit(pd.DataFrame(data.target, columns=NAMES), background=frame(data.background))


def frame(rows):
    return pd.DataFrame(rows, columns=NAMES)


def same(found, expected):
    np.testing.assert_allclose(found.ratios_, expected.ratios_, rtol=1e-12)
    np.testing.assert_allclose(found.components_, expected.components_, rtol=1e-10, atol=1e-12)


def spoilt(files, data):
    """Target and background with missing values in different features."""
    target, background = frame(data.target), frame(data.background)
    target.loc[3, "b"] = np.nan
    background.loc[5, "d"] = np.nan
    target.to_csv(files / "target.csv", index=False)
    background.to_csv(files / "background.csv", index=False)
    return target, background


def both(data, folder, **columns):
    """Write target and background with these additional columns."""
    for name, rows in (("target", data.target), ("background", data.background)):
        frame(rows).assign(**{c: values[: len(rows)] for c, values in columns.items()}).to_csv(
            folder / f"{name}.csv", index=False
        )
    return [folder / "target.csv", "-b", folder / "background.csv"]


def bad_files(folder):
    (folder / "empty.csv").write_bytes(b"")
    (folder / "binary.csv").write_bytes(bytes(range(256)) * 40)
    (folder / "ragged.csv").write_text("a,b,c,d,e\n1,2,3,4,5\n1,2,3\n")
    (folder / "latin.csv").write_bytes("a,b,c,d,größe\n1,2,3,4,5\n1,2,3,4,6\n".encode("latin-1"))
    (folder / "twice.csv").write_text("a,b,b,d,e\n1,2,3,4,5\n2,2,3,4,5\n")
    (folder / "other.csv").write_text("v,w,x,y,z\n1,2,3,4,5\n2,2,3,4,5\n5,3,1,4,5\n")
    (folder / "nan.csv").write_text("a,b,c,d,e\n1,2,3,4,5\n2,,3,4,5\n5,3,1,4,5\n")
