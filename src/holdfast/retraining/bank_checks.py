"""What a bank must be: whole, and of the same kind as what it is used with."""

from typing import TYPE_CHECKING

from holdfast.counterfactuals import Counterfactuals
from holdfast.errors import ModelError, SchemaError
from holdfast.models.base import Model

if TYPE_CHECKING:
    from holdfast.retraining.bank import ModelBank


def check_fits(bank: "ModelBank", other: "Model | Counterfactuals | ModelBank") -> None:
    """An error unless a model, counterfactuals or a bank have the same classes and the same
    encoding."""
    if bool(other.classes) != bool(bank.classes):
        held = "classifiers"
        needed = "regression models"
        if other.classes:
            held, needed = needed, held
        raise ModelError(
            f"the bank holds {held}, and {needed} need a bank of their own; retrain one"
        )
    if tuple(other.classes) != bank.classes:
        same = set(other.classes) == set(bank.classes)
        hint = "; pass classes=model.classes to ModelBank.retrain" if same else ""
        raise ModelError(
            f"the bank has the classes {list(bank.classes)}, not {list(other.classes)}{hint}"
        )
    if other.schema.encoding_key != bank.schema.encoding_key:
        raise SchemaError(
            "the bank was made with another schema, by which rows become other numbers; "
            "retrain it with the schema of the answers"
        )


def check_whole(bank: "ModelBank") -> None:
    """An error unless every architecture takes the rows of the schema and returns the classes."""
    if not bank.groups:
        raise ModelError("it holds no model")
    first = 0
    for group in bank.groups:
        if not len(group) or len(group.origins) not in (0, len(group)):
            raise ModelError(
                f"family {group.family!r} has {len(group)} models from {len(group.origins)} origins"
            )
        bank.model(first)
        first += len(group)
