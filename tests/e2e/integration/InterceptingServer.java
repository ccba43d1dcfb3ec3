// SPDX-License-Identifier: Apache-2.0
package org.apache.rocketmq.namesrv;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.Pair;
import org.apache.rocketmq.remoting.RemotingServer;
import org.apache.rocketmq.remoting.netty.NettyRequestProcessor;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * A port before the NameServer that runs already, which forwards each connection to one of its own, frame by frame. A
 * test's processor may answer a request itself; asking the default processor means to forward it.
 */
class InterceptingServer {
    private final Map<Integer, NettyRequestProcessor> processors = new ConcurrentHashMap<>();
    private final ServerSocket listener;

    InterceptingServer() {
        try {
            listener = new ServerSocket(0, 128, InetAddress.getLoopbackAddress());
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
        daemon(this::accept);
    }

    int port() {
        return listener.getLocalPort();
    }

    /** What tests use of a RemotingServer: registerProcessor and getDefaultProcessorPair. */
    RemotingServer face() {
        Class<?>[] types = {RemotingServer.class};
        return (RemotingServer) Proxy.newProxyInstance(RemotingServer.class.getClassLoader(), types, (self, method, args) -> {
            switch (method.getName()) {
                case "registerProcessor":
                    processors.put((Integer) args[0], (NettyRequestProcessor) args[1]);
                    return null;
                case "getDefaultProcessorPair":
                    return new Pair<NettyRequestProcessor, Object>(new Forward(), null);
                default:
                    throw new UnsupportedOperationException(method.toString());
            }
        });
    }

    private void accept() {
        try {
            while (true) {
                Socket client = listener.accept();
                Socket server = new Socket(InetAddress.getLoopbackAddress(), Remote.PORT);
                client.setTcpNoDelay(true);
                server.setTcpNoDelay(true);
                daemon(() -> copy(client, server, true));
                daemon(() -> copy(server, client, false));
            }
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private void copy(Socket from, Socket to, boolean requests) {
        try (Socket source = from; Socket sink = to) {
            DataInputStream in = new DataInputStream(source.getInputStream());
            while (true) {
                byte[] frame = new byte[in.readInt()];
                in.readFully(frame);
                RemotingCommand answer = requests ? answer(frame) : null;
                if (answer == null) {
                    send(sink, ByteBuffer.allocate(4 + frame.length).putInt(frame.length).put(frame));
                } else {
                    send(source, answer.encode());
                }
            }
        } catch (IOException over) {
            // one end is gone, and the other goes with it
        }
    }

    private RemotingCommand answer(byte[] frame) throws IOException {
        try {
            RemotingCommand request = RemotingCommand.decode(ByteBuffer.wrap(frame));
            NettyRequestProcessor processor = request.isResponseType() ? null : processors.get(request.getCode());
            RemotingCommand answer = processor == null ? null : processor.processRequest(null, request);
            if (answer != null) {
                answer.setOpaque(request.getOpaque());
                answer.markResponseType();
            }
            return answer;
        } catch (Exception error) {
            throw new IOException(error);
        }
    }

    private static void send(Socket socket, ByteBuffer frame) throws IOException {
        synchronized (socket) {
            new DataOutputStream(socket.getOutputStream()).write(frame.array(), 0, frame.capacity());
        }
    }

    private static void daemon(Runnable task) {
        Thread thread = new Thread(task, "intercepting-server");
        thread.setDaemon(true);
        thread.start();
    }

    private static class Forward implements NettyRequestProcessor {
        @Override
        public RemotingCommand processRequest(io.netty.channel.ChannelHandlerContext context, RemotingCommand request) {
            return null;
        }

        @Override
        public boolean rejectRequest() {
            return false;
        }
    }
}
