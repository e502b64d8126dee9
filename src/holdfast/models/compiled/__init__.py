"""Exact copies of fitted scikit-learn, XGBoost and LightGBM models that score encoded rows fast.

names      which columns of a table a model was trained on
columns    every input of the estimator as a function of one column of the table
smooth     linear models and networks -> a differentiable torch program
nodes      the nodes of all trees of a model, whatever library it comes from
forests    scikit-learn's trees as nodes;  boosters: XGBoost's and LightGBM's;  graphs: those of ONNX
blend      all trees at once, over blocks of rows
scores     the predicted class among the scores; decision: how an estimator gets to it
match      which of these a model gets, and why another gets none
"""
