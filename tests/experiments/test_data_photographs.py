"""Digits over photographs: the sum of both, without replacement, reproducible from the seed."""

import numpy as np
import pytest

from experiments.data import digits_over_photographs, load_cifar10, load_mnist
from published import MNIST_TEST, MNIST_TRAIN
from standout.errors import NotEnoughRowsError

SIXES, NINES, FROGS = MNIST_TRAIN[6] + MNIST_TEST[6], MNIST_TRAIN[9] + MNIST_TEST[9], 6000


def chequered(n, side):
    """Return images that encode their number in every crop: n // 128 and 128 + n % 128, alternating."""
    number = np.arange(n)[:, None, None]
    odd = np.indices((side, side)).sum(axis=0) % 2 == 1
    return np.where(odd, 128 + number % 128, number // 128).astype(np.uint8)


def numbers(rows):
    """Return the number encoded in each chequered row, scaled from 0 to 1."""
    whole = np.rint(255 * rows).astype(int)
    low, high = whole.min(axis=1), whole.max(axis=1)
    assert ((whole == low[:, None]) | (whole == high[:, None])).all()
    return 128 * low + high - 128


def folder_with(place, digits, frogs):
    place.mkdir()
    labels = np.repeat([6, 9, 6, 9], [MNIST_TRAIN[6], MNIST_TRAIN[9], MNIST_TEST[6], MNIST_TEST[9]])
    np.savez(place / "mnist_6_9.npz", images=digits, labels=labels, is_test=np.arange(len(labels)) >= 5918 + 5949)
    np.savez(place / "cifar10_frogs_gray_6000.npz", images=frogs, batch=np.repeat(np.arange(1, 7), 1000))
    return place


@pytest.fixture(scope="module")
def numbered_frogs(tmp_path_factory):
    black = np.zeros((SIXES + NINES, 28, 28), np.uint8)
    return folder_with(tmp_path_factory.mktemp("a") / "frogs", black, chequered(FROGS, 32))


@pytest.fixture(scope="module")
def numbered_digits(tmp_path_factory):
    black = np.zeros((FROGS, 32, 32), np.uint8)
    return folder_with(tmp_path_factory.mktemp("b") / "digits", chequered(SIXES + NINES, 28), black)


def test_no_photograph_is_used_twice(numbered_frogs):
    found = digits_over_photographs(n_each=1000, n_background=3500, n_new=250, data_dir=numbered_frogs)
    used = [numbers(rows) for rows in (found.target, found.background, found.new)]
    assert [len(part) for part in used] == [2000, 3500, 500]
    assert sorted(np.concatenate(used)) == list(range(FROGS))


def test_no_digit_is_used_twice_and_labels_match(numbered_digits):
    found = digits_over_photographs(0.5, n_each=1500, n_background=10, n_new=300, data_dir=numbered_digits)
    labels = load_mnist(numbered_digits).labels
    used = [numbers(rows / 0.5) for rows in (found.target, found.new)]
    assert len(set(np.concatenate(used))) == 2 * 1800
    for part, digit, each in zip(used, (found.digit, found.new_digit), (1500, 300), strict=True):
        np.testing.assert_array_equal(labels[part], digit)
        assert digit.tolist() == [6] * each + [9] * each
    assert not found.background.any()


def test_crops_reach_every_corner_of_a_photograph(tmp_path_factory):
    corners = np.zeros((FROGS, 32, 32), np.uint8)
    corners[:, :, :] = np.add.outer(
        32 * np.arange(32) // 8, np.arange(32)
    )  # 4 · row + column: different at each corner
    black = np.zeros((SIXES + NINES, 28, 28), np.uint8)
    folder = folder_with(tmp_path_factory.mktemp("c") / "corners", black, corners)
    first = np.rint(255 * digits_over_photographs(data_dir=folder).background[:, 0]).astype(int)
    expected = np.add.outer(4 * np.arange(5), np.arange(5)).ravel()
    counts = np.bincount(first, minlength=21) / 3000
    np.testing.assert_allclose(counts, np.bincount(expected, minlength=21) / 25, atol=0.03)


def test_held_out_photographs_do_not_change_target_and_background(numbered_frogs):
    plain = digits_over_photographs(n_each=50, n_background=100, data_dir=numbered_frogs, seed=3)
    more = digits_over_photographs(n_each=50, n_background=100, n_new=20, data_dir=numbered_frogs, seed=3)
    assert plain.new.shape == (0, 784) and more.new.shape == (40, 784)
    np.testing.assert_array_equal(numbers(plain.target), numbers(more.target))
    np.testing.assert_array_equal(numbers(plain.background), numbers(more.background))


def test_the_seed_determines_the_sample(numbered_frogs):
    one, again, other = (
        digits_over_photographs(n_each=50, n_background=100, n_new=5, data_dir=numbered_frogs, seed=seed)
        for seed in (1, 1, 2)
    )
    for name in ("target", "digit", "background", "new", "new_digit"):
        np.testing.assert_array_equal(getattr(one, name), getattr(again, name))
    assert (numbers(one.background) != numbers(other.background)).any()


def test_asking_for_more_images_than_exist_is_rejected(numbered_frogs, refused):
    def ask(**counts):
        return lambda: digits_over_photographs(data_dir=numbered_frogs, **counts)

    refused(ask(n_each=1500, n_background=3001), "6001 photographs are needed, and there are 6000 of 'frog'")
    refused(ask(n_each=6800, n_new=77), "6877 images of each digit", "6876", kind=NotEnoughRowsError)
    refused(ask(n_each=0), "n_each=0")
    refused(ask(n_background=2.5), "n_background=2.5")
    refused(ask(n_new=-1), "n_new=-1")
    refused(ask(digits=(6, 6)), "digits: (6, 6)")
    refused(ask(digits=(6, 3)), "holds the digits 6, 9, but not 3")
    refused(ask(digits=()), "digits")
    refused(ask(digits=([6],)), "digits: ([6],)")


@pytest.mark.data
def test_real_digits_are_superimposed_on_real_frogs(real_data):
    folder = real_data("cifar10_frogs_gray_6000.npz").parent
    half, full = (digits_over_photographs(weight, 200, 300, data_dir=folder, seed=5) for weight in (0.5, 1.0))
    np.testing.assert_array_equal(half.background, full.background)
    strokes = np.rint(255 * 2 * (full.target - half.target)).astype(np.uint8).reshape(-1, 28, 28)
    digits = load_mnist(folder, digits=[6, 9])
    known = {image.tobytes(): label for image, label in zip(digits.images, digits.labels, strict=True)}
    assert [known[stroke.tobytes()] for stroke in strokes] == half.digit.tolist()
    assert half.background.min() >= 0 and half.background.max() <= 1 and half.target.max() <= 1.5
    beginnings = {frog[2, k : k + 28].tobytes() for frog in load_cifar10(folder).images for k in range(5)}
    under = np.rint(255 * (2 * half.target - full.target)).astype(np.uint8).reshape(-1, 28, 28)
    assert np.mean([crop[0].tobytes() in beginnings for crop in under]) == pytest.approx(1 / 5, abs=0.1)
    assert half.source == "mnist_6_9.npz (sha256 274323c6824f); cifar10_frogs_gray_6000.npz (sha256 7a5edc32acb2)"
