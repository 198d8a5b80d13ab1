import java.io.File;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/**
 * A name server and a RocketMQ 5 broker with its tiered store, on loopback, in one process.
 *
 * A producer sends COUNT messages with a key each, over TCP. Once the tiered store has them all, the broker is asked by
 * its own queryMessage where each key's message lies: a line "key queue offset size queueOffset" goes to PLACES. Then
 * the broker ends as its operator would end it, which uploads what is left of its index files.
 *
 *   java ... TieredBroker HOME NAMESRV_PORT BROKER_PORT CONFIG COUNT PLACES
 */
public final class TieredBroker {
    private static final String TOPIC = "orders";

    public static void main(String[] args) {
        try {
            run(args);
            System.exit(0);
        } catch (Throwable error) { // the broker's threads would outlive it
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String[] args) throws Exception {
        File home = new File(args[0]);
        int namesrvPort = Integer.parseInt(args[1]);
        int count = Integer.parseInt(args[4]);
        NettyServerConfig namesrvNetty = new NettyServerConfig();
        namesrvNetty.setListenPort(namesrvPort);
        namesrvNetty.setBindAddress("127.0.0.1");
        NamesrvConfig namesrvConfig = new NamesrvConfig();
        namesrvConfig.setRocketmqHome(home.getPath());
        NamesrvController namesrv =
            new NamesrvController(namesrvConfig, namesrvNetty, new NettyClientConfig());
        namesrv.initialize();
        namesrv.start();
        BrokerController broker = BrokerStartup.createBrokerController(new String[] {"-c", args[3]});
        broker.start();
        String[] keys = send("127.0.0.1:" + namesrvPort, count);
        System.out.println("sent " + count);
        try (PrintWriter places = new PrintWriter(args[5], StandardCharsets.UTF_8)) {
            for (String key : keys) {
                places.println(place(broker, key));
            }
        }
        System.out.println("asked " + count);
        broker.shutdown();
        namesrv.shutdown();
        System.out.println("ended");
    }

    private static String[] send(String namesrv, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("tierdex");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        while (true) {
            try {
                producer.createTopic("broker-a", TOPIC, 4, null);
                if (!producer.fetchPublishMessageQueues(TOPIC).isEmpty()) {
                    break;
                }
            } catch (Exception notYet) {
                Thread.sleep(200);
            }
        }
        Object[] queues = producer.fetchPublishMessageQueues(TOPIC).toArray();
        String[] keys = new String[count];
        Semaphore inFlight = new Semaphore(64);
        AtomicInteger failed = new AtomicInteger();
        CountDownLatch done = new CountDownLatch(count);
        for (int n = 0; n < count; n++) {
            keys[n] = "ORDER-" + n;
            byte[] body = ("{\"order\":" + n + "}").getBytes(StandardCharsets.UTF_8);
            Message message = new Message(TOPIC, "tag", keys[n], body);
            inFlight.acquire();
            producer.send(message, (MessageQueue) queues[n % queues.length], new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    if (result.getSendStatus() != SendStatus.SEND_OK) {
                        failed.incrementAndGet();
                    }
                    end();
                }

                @Override
                public void onException(Throwable error) {
                    error.printStackTrace();
                    failed.incrementAndGet();
                    end();
                }

                private void end() {
                    inFlight.release();
                    done.countDown();
                }
            });
        }
        done.await();
        producer.shutdown();
        if (failed.get() > 0) {
            throw new IllegalStateException(failed.get() + " messages were not taken");
        }
        return keys;
    }

    /** Ask until the tiered store has the key, and say where. */
    private static String place(BrokerController broker, String key) throws Exception {
        while (true) {
            QueryMessageResult found = broker.getMessageStore()
                .queryMessageAsync(TOPIC, key, 32, 0L, System.currentTimeMillis() + 60_000).join();
            for (SelectMappedBufferResult message : found.getMessageMapedList()) {
                ByteBuffer bytes = message.getByteBuffer();
                int start = bytes.position();
                String text = StandardCharsets.ISO_8859_1.decode(bytes.duplicate()).toString();
                if (!text.contains("KEYS\u0001" + key + "\u0002")) {
                    continue; // another key of the same hash
                }
                int queue = bytes.getInt(start + 12);
                long queueOffset = bytes.getLong(start + 20);
                return key + " " + queue + " " + message.getStartOffset() + " " + message.getSize()
                    + " " + queueOffset;
            }
            Thread.sleep(200);
        }
    }
}
