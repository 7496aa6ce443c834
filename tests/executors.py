"""An executor that ends its jobs in an order of its own."""

import random
from concurrent.futures import Executor, Future


class ShufflingExecutor(Executor):
    """Does ``at_once`` jobs, in a shuffled order, when so many were submitted."""

    def __init__(self, seed, at_once):
        self.random, self.at_once = random.Random(seed), at_once
        self.waiting = []

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        self.waiting.append((future, fn, args, kwargs))
        if len(self.waiting) == self.at_once:
            self.random.shuffle(self.waiting)
            while self.waiting:
                waiting, function, given, named = self.waiting.pop()
                waiting.set_result(function(*given, **named))
        return future
