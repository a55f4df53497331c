select before from pruned
