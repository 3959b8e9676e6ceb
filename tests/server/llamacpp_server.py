"""llama.cpp's server in this process: prints its URL and runs until its input ends.

usage: python llamacpp_server.py GGUF
"""

import sys

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.hostnames = ["127.0.0.1"]
parameters.port = 0  # whichever is free
parameters.n_ctx = 1024
parameters.n_parallel = 1
parameters.cache_ram_mib = 0
parameters.cpuparams.n_threads = 1  # its threads wait for one another by spinning: on a busy machine, more are slower
parameters.cpuparams_batch.n_threads = 1
parameters.endpoint_metrics = True
parameters.warmup = False
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
