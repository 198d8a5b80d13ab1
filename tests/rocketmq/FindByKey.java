import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.common.message.MessageExt;

/** Asks by RocketMQ's own Java client and prints "queue offset body" of each message.    java ... NAMESRV TOPIC KEY */
public final class FindByKey {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer client = new DefaultMQProducer("find-by-key");
        client.setNamesrvAddr(args[0]);
        client.start();
        QueryResult found = client.queryMessage(args[1], args[2], 64, 0, System.currentTimeMillis());
        for (MessageExt each : found.getMessageList()) {
            System.out.println(each.getQueueId() + " " + each.getQueueOffset() + " " + new String(each.getBody()));
        }
        System.exit(0);
    }
}
