package tierdex.rocketmq;

import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.plugin.MessageStorePluginContext;
import org.apache.rocketmq.store.rocksdb.MessageRocksDBStorage;
import org.apache.rocketmq.store.timer.rocksdb.TimerMessageRocksDBStore;
import org.apache.rocketmq.store.transaction.TransMessageRocksDBStore;

/** The seams of RocketMQ 5.4 and later. */
abstract class PassingStore extends AnsweringStore {
    PassingStore(MessageStorePluginContext context, MessageStore next) {
        super(context, next);
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
