package tierdex.rocketmq;

import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.plugin.MessageStorePluginContext;

/** The seams of RocketMQ 5.1 to 5.3. */
abstract class PassingStore extends AnsweringStore {
    PassingStore(MessageStorePluginContext context, MessageStore next) {
        super(context, next);
    }
}
