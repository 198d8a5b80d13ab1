package tierdex.rocketmq;

import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.plugin.AbstractPluginMessageStore;
import org.apache.rocketmq.store.plugin.MessageStorePluginContext;
import org.apache.rocketmq.store.rocksdb.MessageRocksDBStorage;
import org.apache.rocketmq.store.timer.rocksdb.TimerMessageRocksDBStore;
import org.apache.rocketmq.store.transaction.TransMessageRocksDBStore;

/** The seams of RocketMQ 5.4 and later: queries by key go through `answered`, all else to the next store. */
abstract class PassingStore extends AbstractPluginMessageStore {
    PassingStore(MessageStorePluginContext context, MessageStore next) {
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

    /** `lastKey` is where the page before ended: what Tierdex has was on the first. */
    @Override
    public QueryMessageResult queryMessage(
        String topic, String key, int maxNum, long begin, long end, String indexType, String lastKey) {
        Supplier<QueryMessageResult> below =
            () -> next.queryMessage(topic, key, maxNum, begin, end, indexType, lastKey);
        boolean isFirst = lastKey == null || lastKey.isEmpty();
        return isFirst ? answered(new Query(topic, key, maxNum, begin, end), below) : below.get();
    }

    @Override
    public CompletableFuture<QueryMessageResult> queryMessageAsync(
        String topic, String key, int maxNum, long begin, long end, String indexType, String lastKey) {
        Supplier<CompletableFuture<QueryMessageResult>> below =
            () -> next.queryMessageAsync(topic, key, maxNum, begin, end, indexType, lastKey);
        boolean isFirst = lastKey == null || lastKey.isEmpty();
        return isFirst ? answeredLater(new Query(topic, key, maxNum, begin, end), below) : below.get();
    }

    /** Not passed on by AbstractPluginMessageStore. */
    @Override
    public long getOffsetInQueueByTime(String topic, int queue, long timestamp, BoundaryType boundary) {
        return next.getOffsetInQueueByTime(topic, queue, timestamp, boundary);
    }

    @Override
    public MessageRocksDBStorage getMessageRocksDBStorage() {
        return next.getMessageRocksDBStorage();
    }

    @Override
    public TimerMessageRocksDBStore getTimerMessageRocksDBStore() {
        return next.getTimerMessageRocksDBStore();
    }

    @Override
    public void setTimerMessageRocksDBStore(TimerMessageRocksDBStore store) {
        next.setTimerMessageRocksDBStore(store);
    }

    @Override
    public TransMessageRocksDBStore getTransMessageRocksDBStore() {
        return next.getTransMessageRocksDBStore();
    }

    @Override
    public void setTransMessageRocksDBStore(TransMessageRocksDBStore store) {
        next.setTransMessageRocksDBStore(store);
    }
}
