// SPDX-License-Identifier: Apache-2.0
package org.apache.rocketmq.namesrv;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.routeinfo.RouteInfoManager;
import org.apache.rocketmq.remoting.RemotingServer;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;

/** Stands before RocketMQ's own on the class path: the NameServer of its integration tests is one that runs already. */
public class NamesrvController {
    private final NettyServerConfig nettyServerConfig;
    private final NamesrvConfig namesrvConfig = new RemoteConfig();
    private final RouteInfoManager routeInfoManager = new RemoteRoutes(namesrvConfig, this);
    private InterceptingServer remotingServer;

    public NamesrvController(NamesrvConfig namesrvConfig, NettyServerConfig nettyServerConfig) {
        this.nettyServerConfig = nettyServerConfig;
    }

    public boolean initialize() {
        nettyServerConfig.setListenPort(Remote.PORT);
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

    public RouteInfoManager getRouteInfoManager() {
        return routeInfoManager;
    }

    /** For tests that answer some requests in the NameServer's place: they talk to it through a port that lets them. */
    public synchronized RemotingServer getRemotingServer() {
        if (remotingServer == null) {
            remotingServer = new InterceptingServer();
            nettyServerConfig.setListenPort(remotingServer.port());
        }
        return remotingServer.face();
    }

    /** What a test sets in the process of the NameServer is said to it as `mqadmin updateNamesrvConfig` does. */
    private static class RemoteConfig extends NamesrvConfig {
        @Override
        public void setDeleteTopicWithBrokerRegistration(boolean value) {
            super.setDeleteTopicWithBrokerRegistration(value);
            RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.UPDATE_NAMESRV_CONFIG, null);
            request.setBody(("deleteTopicWithBrokerRegistration=" + value).getBytes(StandardCharsets.UTF_8));
            Remote.ask(request);
        }
    }
}
