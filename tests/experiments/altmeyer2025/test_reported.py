"""What is copied from the paper agrees with the means that it prints."""

import numpy as np
import pytest

from experiments.altmeyer2025.reported import ACCURACY, EARLIER, LATER
from experiments.altmeyer2025.setup import SETTINGS


def test_the_tables_are_copied_right() -> None:
    """Their means over the nine datasets are printed too."""
    assert set(LATER) == set(EARLIER) == set(ACCURACY) == set(SETTINGS)
    for table, printed in ((LATER, (15.64, 25.29, 18.49)), (EARLIER, (17.83, 38.35, 19.07))):
        for i, mean in enumerate(printed):
            assert np.mean([line[i][0] for line in table.values()]) == pytest.approx(mean, abs=0.01)
