"""Hosts many single environments behind the contract of a batch: in this process, or in workers. Knows no learner."""
