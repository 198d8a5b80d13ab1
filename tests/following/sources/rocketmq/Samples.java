import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Messages as RocketMQ's own Java client sends them, to queue 0 of two topics of the broker "broker-a": bodies in
 * each compression, several keys, a batch; BATCHED is a topic whose batches are stored as one message.
 *
 * Prints "key offset id" of each message.    java ... Samples NAMESRV TOPIC BATCHED
 */
public final class Samples {
    public static void main(String[] args) throws Exception {
        for (CompressionType kind : CompressionType.values()) {
            DefaultMQProducer producer = started(args[0], "samples-" + kind.name());
            producer.setCompressMsgBodyOverHowmuch(100);
            producer.setCompressType(kind);
            Message message = message(args[1], kind.name() + " SKU-1", "packed ".repeat(200));
            say(kind.name(), producer.send(message, new MessageQueue(args[1], "broker-a", 0)));
            producer.shutdown();
        }
        DefaultMQProducer producer = started(args[0], "samples");
        for (String topic : new String[] {args[1], args[2]}) {
            List<Message> batch = new ArrayList<>();
            for (int n = 0; n < 3; n++) {
                batch.add(message(topic, "BATCH-" + n, "in a batch"));
            }
            SendResult sent = producer.send(batch, new MessageQueue(topic, "broker-a", 0));
            say("batch", sent);
        }
        producer.shutdown();
        System.exit(0);
    }

    private static DefaultMQProducer started(String namesrv, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(group);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        return producer;
    }

    private static Message message(String topic, String keys, String text) {
        byte[] body = ("{\"text\":\"" + text + "\"}").getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic, "tag", keys, body);
        message.putUserProperty("region", "eu");
        return message;
    }

    private static void say(String key, SendResult sent) {
        System.out.println(key + " " + sent.getQueueOffset() + " " + sent.getMsgId());
    }
}
