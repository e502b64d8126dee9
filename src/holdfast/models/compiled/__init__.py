"""Fitted scikit-learn, XGBoost and LightGBM models compiled into equivalent scorers of encoded rows.

column_names      which columns of a table a model was trained on
preprocessing     every input of the estimator as a function of one column of the table
differentiable    linear models and networks -> a differentiable torch program
tree_nodes        the nodes of all trees of a model, whatever library it comes from
from_sklearn      scikit-learn's trees as nodes;  from_boosters: XGBoost's and LightGBM's;  from_onnx: those of ONNX
tree_program      all trees at once, over blocks of rows;  tree_leaves: their leaves and thresholds, for searches
decision_rule     how an estimator gets from scores to the predicted class
build             which of these a model gets, checked against the model itself, and why another gets none
"""
