// SPDX-License-Identifier: Apache-2.0
package org.apache.rocketmq.namesrv;

import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.ResponseCode;

/** Questions to the NameServer that runs already. */
final class Remote {
    static final int PORT = Integer.getInteger("routelake.port");

    private Remote() {
    }

    /** Its answer; an exception if that is not SUCCESS. */
    static RemotingCommand ask(RemotingCommand request) {
        NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
        client.start();
        try {
            RemotingCommand answer = client.invokeSync("127.0.0.1:" + PORT, request, 30_000);
            if (answer.getCode() != ResponseCode.SUCCESS) {
                throw new IllegalStateException(answer.getRemark());
            }
            return answer;
        } catch (RuntimeException error) {
            throw error;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        } finally {
            client.shutdown();
        }
    }
}
