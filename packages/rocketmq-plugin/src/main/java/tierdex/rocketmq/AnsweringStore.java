package tierdex.rocketmq;

import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.plugin.AbstractPluginMessageStore;
import org.apache.rocketmq.store.plugin.MessageStorePluginContext;

/** A store whose queries by key go through `answered`, and all else to the next store. */
abstract class AnsweringStore extends AbstractPluginMessageStore {
    AnsweringStore(MessageStorePluginContext context, MessageStore next) {
        super(context, next);
    }

    /** Answer a query; `below` asks the next store. */
    abstract QueryMessageResult answered(Query query, Supplier<QueryMessageResult> below);

    abstract CompletableFuture<QueryMessageResult> answeredLater(
        Query query, Supplier<CompletableFuture<QueryMessageResult>> below);

    @Override
    public QueryMessageResult queryMessage(String topic, String key, int maxNum, long begin, long end) {
        return answered(
            new Query(topic, key, maxNum, begin, end), () -> next.queryMessage(topic, key, maxNum, begin, end));
    }

    @Override
    public CompletableFuture<QueryMessageResult> queryMessageAsync(
        String topic, String key, int maxNum, long begin, long end) {
        return answeredLater(
            new Query(topic, key, maxNum, begin, end), () -> next.queryMessageAsync(topic, key, maxNum, begin, end));
    }

    /** Not passed on by AbstractPluginMessageStore. */
    @Override
    public long getOffsetInQueueByTime(String topic, int queue, long timestamp, BoundaryType boundary) {
        return next.getOffsetInQueueByTime(topic, queue, timestamp, boundary);
    }
}
