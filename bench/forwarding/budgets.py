"""What each row may cost (section "Budgets" of README.md), and the verdict on a measurement."""
import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Budget:
    """`limit` of the value itself, or of its ratio to native. Times may not be above, bandwidths not below."""
    limit: float
    is_ratio: bool = False
    or_native: bool = False  # a value that is over the limit but not worse than native is within

    def sentence(self, is_bandwidth):
        sign = ">=" if is_bandwidth else "<="
        text = f"{sign} {self.limit:g}{'x native' if self.is_ratio else ''}"
        return text + (" or native" if self.or_native else "")

    def allows(self, value, native, is_bandwidth):
        """None when that cannot be told: no native run to compare with."""
        if native is None and (self.is_ratio or self.or_native):
            return True if self.or_native and value <= self.limit else None
        if self.or_native and value <= native:
            return True
        measured = value / native if self.is_ratio else value
        return measured >= self.limit if is_bandwidth else measured <= self.limit


# The first pattern that matches a row's name counts; a row that none matches has no budget.
BUDGETS = [(re.compile(pattern), budget) for pattern, budget in [
    (r"^launch", Budget(0.3)),
    (r"^cudaMemsetAsync|^cudaMemcpyAsync|^cudaEventRecord|^cudaStreamWaitEvent", Budget(0.3)),
    (r"^graph launch, .*call only", Budget(0.3)),
    (r"^empty launch \+ cudaStreamSynchronize", Budget(9)),
    (r"^sustained launches", Budget(2.7, or_native=True)),
    (r"^copy (pinned|device to pinned)", Budget(0.98, is_ratio=True)),
    (r"^copy (pageable|device to pageable)", Budget(1.0, is_ratio=True)),
    (r"^BERT-base.*graph", Budget(1.01, is_ratio=True)),
    (r"^BERT-base.*eager", Budget(1.0, is_ratio=True)),
    (r"^GPT-2-medium", Budget(1.01, is_ratio=True)),
    (r"^ResNet-50", Budget(1.01, is_ratio=True)),
    (r"^idle CPU", Budget(1.0)),
    (r"^process start.*next program", Budget(1.0, is_ratio=True)),
]]


def budget_of(name):
    return next((budget for pattern, budget in BUDGETS if pattern.search(name)), None)
