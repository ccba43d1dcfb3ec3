// SPDX-License-Identifier: Apache-2.0
package org.apache.rocketmq.namesrv;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;

/** Stands before RocketMQ's own on the class path: the NameServer of its integration tests is one that runs already. */
public class NamesrvController {
    private final NettyServerConfig nettyServerConfig;
    private final NamesrvConfig namesrvConfig = new RemoteConfig();

    public NamesrvController(NamesrvConfig namesrvConfig, NettyServerConfig nettyServerConfig) {
        this.nettyServerConfig = nettyServerConfig;
    }

    public boolean initialize() {
        nettyServerConfig.setListenPort(Integer.getInteger("routelake.port"));
        return true;
    }

    public void start() {
    }

    public void shutdown() {
    }

    public NettyServerConfig getNettyServerConfig() {
        return nettyServerConfig;
    }

    public NamesrvConfig getNamesrvConfig() {
        return namesrvConfig;
    }

    /** What a test sets in the process of the NameServer is said to it as `mqadmin updateNamesrvConfig` does. */
    private static class RemoteConfig extends NamesrvConfig {
        @Override
        public void setDeleteTopicWithBrokerRegistration(boolean value) {
            super.setDeleteTopicWithBrokerRegistration(value);
            NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
            client.start();
            try {
                RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.UPDATE_NAMESRV_CONFIG, null);
                request.setBody(("deleteTopicWithBrokerRegistration=" + value).getBytes(StandardCharsets.UTF_8));
                RemotingCommand answer =
                    client.invokeSync("127.0.0.1:" + Integer.getInteger("routelake.port"), request, 30_000);
                if (answer.getCode() != ResponseCode.SUCCESS) {
                    throw new IllegalStateException(answer.getRemark());
                }
            } catch (Exception error) {
                throw new IllegalStateException(error);
            } finally {
                client.shutdown();
            }
        }
    }
}
