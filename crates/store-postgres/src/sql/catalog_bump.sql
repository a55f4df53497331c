-- The row stays locked until the commit, so versions appear in the order of commits.
update catalog set version = version + 1 returning version
