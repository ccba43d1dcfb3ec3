# SPDX-License-Identifier: Apache-2.0
"""Tools of developers, which the wheel leaves out.

benchmarks/       load generators, their runner, one module per benchmark
peers/            stock RocketMQ, Kafka, proxies and routelake itself, started as processes
fault_injection/  traffic and faults against real processes, checked against the model
model/            a model of the NameServer, independent of the product's rules
histories/        generated traffic
support/          kits of the tests
commands.py       options of ./routelake test, check, torture, bench, ...
developer.py      ./routelake check, fix and coverage
jars_lock.py      writes runtime/jars.lock
"""
