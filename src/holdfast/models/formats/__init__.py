"""Model files: what a file is, whether loading it can run code, and what is in it.

`kind` tells files apart by their content. `onnx`, `skops`, `xgboost` and `lightgbm` read formats that hold data; each
checks the file before anything else sees it. Formats that can run code are read by `trusted`, and only if asked.
"""
