// SPDX-License-Identifier: Apache-2.0
package org.apache.rocketmq.broker.transaction;

import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.ServiceThread;

/**
 * Waits, and stands before RocketMQ's own on the class path. That one loops without a pause in the first three seconds
 * of a broker. Nine brokers that start together leave the NameServer no processor time, and their requests time out.
 */
public class TransactionMetricsFlushService extends ServiceThread {
    private final BrokerController broker;

    public TransactionMetricsFlushService(BrokerController broker) {
        this.broker = broker;
    }

    @Override
    public String getServiceName() {
        return "TransactionFlushService";
    }

    @Override
    public void run() {
        while (!isStopped()) {
            waitForRunning(broker.getBrokerConfig().getTransactionMetricFlushInterval());
            broker.getTransactionalMessageService().getTransactionMetrics().persist();
        }
    }
}
