"""The paper's data: MNIST, CIFAR-10, digits over photographs, and the readings of the mice."""

from experiments.data.cifar10 import load_cifar10
from experiments.data.images import Images
from experiments.data.mnist import load_mnist
from experiments.data.photographs import DigitsOverPhotographs, digits_over_photographs

__all__ = ["DigitsOverPhotographs", "Images", "digits_over_photographs", "load_cifar10", "load_mnist"]
