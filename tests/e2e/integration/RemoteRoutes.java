// SPDX-License-Identifier: Apache-2.0
package org.apache.rocketmq.namesrv;

import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.routeinfo.RouteInfoManager;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.body.BrokerMemberGroup;
import org.apache.rocketmq.remoting.protocol.body.GetBrokerMemberGroupResponseBody;
import org.apache.rocketmq.remoting.protocol.header.GetBrokerMemberGroupRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.UnRegisterBrokerRequestHeader;

/** What tests ask of the NameServer's tables in its process, asked over the wire. */
class RemoteRoutes extends RouteInfoManager {
    RemoteRoutes(NamesrvConfig config, NamesrvController controller) {
        super(config, controller);
    }

    @Override
    public void unregisterBroker(String clusterName, String brokerAddr, String brokerName, long brokerId) {
        UnRegisterBrokerRequestHeader header = new UnRegisterBrokerRequestHeader();
        header.setClusterName(clusterName);
        header.setBrokerAddr(brokerAddr);
        header.setBrokerName(brokerName);
        header.setBrokerId(brokerId);
        Remote.ask(RemotingCommand.createRequestCommand(RequestCode.UNREGISTER_BROKER, header));
    }

    @Override
    public BrokerMemberGroup getBrokerMemberGroup(String clusterName, String brokerName) {
        GetBrokerMemberGroupRequestHeader header = new GetBrokerMemberGroupRequestHeader();
        header.setClusterName(clusterName);
        header.setBrokerName(brokerName);
        RemotingCommand answer = Remote.ask(RemotingCommand.createRequestCommand(RequestCode.GET_BROKER_MEMBER_GROUP, header));
        return GetBrokerMemberGroupResponseBody.decode(answer.getBody(), GetBrokerMemberGroupResponseBody.class)
            .getBrokerMemberGroup();
    }
}
