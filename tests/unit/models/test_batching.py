import pytest
import torch

from obbflow.models.batching import pad_batch


def test_images_are_padded_with_zeros_at_the_right_and_the_bottom():
    images = [torch.ones(3, 40, 70), torch.full((3, 33, 20), 2.0)]
    batch, sizes = pad_batch(images, divisor=32)
    assert batch.shape == (2, 3, 64, 96)
    assert sizes == [(40, 70), (33, 20)]
    assert torch.equal(batch[0, :, :40, :70], images[0])
    assert torch.equal(batch[1, :, :33, :20], images[1])
    assert batch.sum() == images[0].sum() + images[1].sum()


def test_a_size_that_fits_is_not_padded():
    batch, _ = pad_batch([torch.ones(3, 64, 32)], divisor=32)
    assert batch.shape == (1, 3, 64, 32)


@pytest.mark.parametrize("shape", [(1, 8, 8), (8, 8), (1, 3, 8, 8)])
def test_a_wrong_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"images must be \(3, H, W\), got"):
        pad_batch([torch.zeros(3, 8, 8), torch.zeros(shape)], divisor=32)


def test_no_image_is_refused():
    with pytest.raises(ValueError, match="at least one image"):
        pad_batch([], divisor=32)
