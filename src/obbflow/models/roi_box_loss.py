"""The box loss of a region head: of deltas, of decoded boxes, or of both."""

from torch import Tensor

from obbflow.config import ModelSection
from obbflow.models.coders import DeltaCoder
from obbflow.models.losses import kfiou_loss, probiou_loss, rotated_iou_loss, smooth_l1

_ANGLE = 4  # its column among the deltas


class RoIBoxLoss:
    """A smooth L1 loss of the deltas, a loss of the overlap of decoded boxes, or a sum of both.

    Args:
        config: Section ``model``; its keys ``roi_box_reg_...``.
        coder: Decodes deltas.
    """

    def __init__(self, config: ModelSection, coder: DeltaCoder) -> None:
        self.config = config
        self.coder = coder
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Take the weights that are scheduled for an epoch, counted from 1."""
        config = self.config.at_epoch(epoch)
        self.angle_weight = config.roi_box_reg_angle_weight
        by_deltas = config.roi_box_reg_main_loss_type == "smooth_l1"
        self.delta_weight = 1.0 if by_deltas else config.roi_box_reg_smooth_l1_aux_weight
        self.iou_weight = config.roi_box_reg_iou_weight if by_deltas else 1.0

    def __call__(self, priors: Tensor, deltas: Tensor, targets: Tensor) -> Tensor:
        """Return the loss (P,) of each region.

        Args:
            priors: (P, 5) regions, px and radians.
            deltas: (P, 5) as regressed.
            targets: (P, 5) rboxes that they have to become.
        """
        wanted = self.coder.encode(priors, targets)
        losses = deltas.new_zeros(len(deltas))
        if self.delta_weight:
            of_deltas = smooth_l1(deltas, wanted, beta=1.0)
            if self.angle_weight != 1:
                scale = of_deltas.new_ones(of_deltas.shape[1])
                scale[_ANGLE] = self.angle_weight
                of_deltas = of_deltas * scale
            losses = losses + self.delta_weight * of_deltas.sum(dim=1)
        if self.iou_weight:
            losses = losses + self.iou_weight * self._of_boxes(priors, deltas, targets, wanted)
        return losses

    def _of_boxes(self, priors: Tensor, deltas: Tensor, targets: Tensor, wanted: Tensor) -> Tensor:
        config = self.config
        boxes = self.coder.decode(priors, deltas)
        match config.roi_box_reg_iou_loss_type:
            case "riou":
                return rotated_iou_loss(boxes, targets)
            case "kfiou":
                return kfiou_loss(boxes, targets, deltas, wanted, fun=config.roi_box_reg_kfiou_fun)
            case "probiou":
                mode = config.roi_box_reg_probiou_mode or "l1"
                return probiou_loss(boxes, targets, mode=mode)
