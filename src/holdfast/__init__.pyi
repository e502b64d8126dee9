"""The public names: the one call that does everything, then the rest in the order in which data
meets them."""

# Plans that hold, in one call
from holdfast.plans.recourse import Recourse as Recourse

# isort: split

from holdfast.plans.banks import Banks as Banks
from holdfast.plans.frontier import Frontier as Frontier
from holdfast.plans.plan import Plan as Plan
from holdfast.plans.plans import Plans as Plans
from holdfast.plans.trained import TrainedBanks as TrainedBanks

# isort: split

# Data, and what may change in it
from holdfast import datasets as datasets
from holdfast.schema.feature import Feature as Feature
from holdfast.schema.rule import Rule as Rule
from holdfast.schema.schema import Schema as Schema

# isort: split

# Models, and models trained again
from holdfast.models.base import Model as Model
from holdfast.models.density import FeatureDensity as FeatureDensity
from holdfast.retraining.bank import ModelBank as ModelBank
from holdfast.retraining.recipe import Recipe as Recipe
from holdfast.retraining.recipe import train_network as train_network
from holdfast.retraining.split import BankSplit as BankSplit

# isort: split

# What is wanted, and the answers
from holdfast import distances as distances
from holdfast.counterfactuals import Counterfactuals as Counterfactuals
from holdfast.errors import HoldfastError as HoldfastError
from holdfast.target import Status as Status
from holdfast.target import Target as Target

# isort: split

# Methods that search
from holdfast.explainer import Explainer as Explainer
from holdfast.methods.cchvae import CCHVAE as CCHVAE
from holdfast.methods.claproar import ClaPROAR as ClaPROAR
from holdfast.methods.descent import Descent as Descent
from holdfast.methods.eccco import ECCCo as ECCCo
from holdfast.methods.gravitational import Gravitational as Gravitational
from holdfast.methods.growing_spheres import GrowingSpheres as GrowingSpheres
from holdfast.methods.latent_search import LatentSearch as LatentSearch
from holdfast.methods.min_cost import MinCost as MinCost
from holdfast.methods.min_epsilon_pgd import MinEpsilonPGD as MinEpsilonPGD
from holdfast.methods.nearest_neighbor import NearestNeighbor as NearestNeighbor
from holdfast.methods.omniscient import Omniscient as Omniscient
from holdfast.methods.prototype import Prototype as Prototype
from holdfast.methods.rbr import RBR as RBR
from holdfast.methods.revise import REVISE as REVISE
from holdfast.methods.roar import ROAR as ROAR
from holdfast.methods.stable_neighbor_search import StableNeighborSearch as StableNeighborSearch
from holdfast.methods.survival_search.search import SurvivalSearch as SurvivalSearch
from holdfast.methods.tree_search.search import TreeSearch as TreeSearch
from holdfast.problem import SearchProblem as SearchProblem
from holdfast.registry import list_methods as list_methods

# isort: split

# Methods that learn to answer
from holdfast.methods.amortized.cf_model import CFModel as CFModel
from holdfast.methods.amortized.counternet import CounterNet as CounterNet
from holdfast.methods.amortized.learned_recourse import LearnedRecourse as LearnedRecourse
from holdfast.methods.amortized.robustify import robustify as robustify
from holdfast.methods.amortized.rocoursenet import RoCourseNet as RoCourseNet
from holdfast.methods.amortized.vae_cf import VAECF as VAECF
from holdfast.methods.amortized.virtual_shift import Shift as Shift

# isort: split

# Training for models that are easier to explain
from holdfast.training.adversarial import AdversarialModels as AdversarialModels
from holdfast.training.adversarial import train_adversarial as train_adversarial
from holdfast.training.counterfactual.settings import (
    CounterfactualObjective as CounterfactualObjective,
)
from holdfast.training.counterfactual.settings import CounterfactualSearch as CounterfactualSearch
from holdfast.training.counterfactual.train import CounterfactualTraining as CounterfactualTraining
from holdfast.training.counterfactual.train import train_counterfactual as train_counterfactual
from holdfast.training.ntk import train_ntk as train_ntk

# isort: split

# Images
from holdfast import images as images
from holdfast.images.deduce import DeDUCE as DeDUCE
from holdfast.images.greedy_ensemble import GreedyEnsemble as GreedyEnsemble
from holdfast.images.jsma import JSMA as JSMA

# isort: split

# How good the answers are, and whether they hold
from holdfast.auditing.audit import Audit as Audit
from holdfast.auditing.audit import audit as audit
from holdfast.auditing.calibration import Calibration as Calibration
from holdfast.auditing.calibration import calibrate as calibrate
from holdfast.evaluation import metrics as metrics
from holdfast.evaluation import plausibility as plausibility
from holdfast.evaluation.attacks import attacked_accuracy as attacked_accuracy
from holdfast.evaluation.attacks import pgd_attack as pgd_attack
from holdfast.evaluation.cross_validity import CrossValidity as CrossValidity
from holdfast.evaluation.cross_validity import cross_validity as cross_validity
from holdfast.evaluation.report import Report as Report
from holdfast.evaluation.report import evaluate as evaluate
from holdfast.evaluation.shift_attack import shift_attack as shift_attack
from holdfast.evaluation.tradeoff import Tradeoff as Tradeoff
from holdfast.evaluation.tradeoff import tradeoff as tradeoff

__version__: str
