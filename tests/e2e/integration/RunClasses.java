// SPDX-License-Identifier: Apache-2.0
import java.util.ArrayList;
import java.util.List;
import java.util.Timer;
import java.util.TimerTask;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.container.BrokerContainer;
import org.apache.rocketmq.test.base.IntegrationTestBase;
import org.apache.rocketmq.test.container.ContainerIntegrationTestBase;
import org.junit.Ignore;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;
import org.junit.runners.BlockJUnit4ClassRunner;

/** Runs classes of JUnit tests one after another, and says of each test, on a line of its own, what became of it. */
public class RunClasses {
    public static void main(String[] names) throws Exception {
        JUnitCore core = new JUnitCore();
        core.addListener(new RunListener() {
            private boolean failed;

            @Override
            public void testStarted(Description test) {
                failed = false;
            }

            @Override
            public void testFailure(Failure failure) {
                failed = true;
                say("FAILED", failure.getDescription());
                System.out.println(failure.getTrimmedTrace());
            }

            @Override
            public void testAssumptionFailure(Failure failure) {
                failed = true;
                say("IGNORED", failure.getDescription());
            }

            @Override
            public void testIgnored(Description test) {
                say("IGNORED", test);
            }

            @Override
            public void testFinished(Description test) {
                if (!failed) {
                    say("PASSED", test);
                }
            }
        });
        new Timer(true).schedule(new TimerTask() {
            @Override
            public void run() {
                Brokers.flushTheirTimersLess();
            }
        }, 1_000, 1_000);
        for (String name : names) {
            Class<?> tests = Class.forName(name);
            Brokers.waitForTheirDisks();
            // RocketMQ's build leaves whole classes out, since they take long: not here
            boolean isLeftOut = tests.isAnnotationPresent(Ignore.class);
            core.run(isLeftOut ? Request.runner(new BlockJUnit4ClassRunner(tests)) : Request.aClass(tests));
        }
        System.out.println("\nRESULT END");
        System.out.flush();
        Runtime.getRuntime().exit(0);
    }

    /** Those that the class's base has started. */
    private static class Brokers extends IntegrationTestBase {
        /** A broker refuses what waits 200 ms, as it does for a first commit log of 100 MB; OneWaySendIT cannot learn of it. */
        static void waitForTheirDisks() {
            for (BrokerController broker : BROKER_CONTROLLERS) {
                broker.getBrokerConfig().setBrokerFastFailureEnable(false);
            }
        }

        /** Each flush compares 38 MB of the timer wheel byte by byte; every second, eighteen brokers fill two cores with it. */
        static void flushTheirTimersLess() {
            List<BrokerController> brokers = new ArrayList<>(BROKER_CONTROLLERS);
            for (BrokerContainer container : Containers.all()) {
                brokers.addAll(container.getBrokerControllers());
            }
            for (BrokerController broker : brokers) {
                broker.getMessageStoreConfig().setTimerFlushIntervalMs(60_000);
            }
        }
    }

    private static class Containers extends ContainerIntegrationTestBase {
        static List<BrokerContainer> all() {
            return new ArrayList<>(brokerContainerList);
        }
    }

    private static void say(String outcome, Description test) {
        System.out.println("\nRESULT " + outcome + " " + test.getClassName() + " " + test.getMethodName());
        System.out.flush();
    }
}
