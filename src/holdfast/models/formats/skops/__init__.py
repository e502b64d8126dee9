"""skops files: scikit-learn estimators without running code from the file."""
