package tierdex.rocketmq;

import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.apache.rocketmq.common.constant.LoggerName;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.logging.org.slf4j.Logger;
import org.apache.rocketmq.logging.org.slf4j.LoggerFactory;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.plugin.MessageStorePluginContext;

/**
 * Answers queries by key from Tierdex, too: messages that the broker's own index no longer has are found.
 *
 * It adds to the answer of the stores below and takes nothing from it. Where Tierdex knows a queue and an offset, the
 * message is read from this broker, and shown only if it has the key; one that the broker has no more comes from
 * Tierdex's message log, if there is one. Without an answer in time, the answer is that of the stores below.
 *
 * It writes nothing, indexes nothing (`tierdex follow` does) and is on no path of a message that is sent or consumed.
 * Whatever fails here, the broker starts and serves as without it.
 */
public class TierdexMessageStore extends PassingStore {
    private static final Logger LOG = LoggerFactory.getLogger(LoggerName.STORE_LOGGER_NAME);
    private static final String GROUP = "TIERDEX_QUERY";
    private static final int QUEUE_MASK = 0xFFFF; // the upper bits of a followed queue are its broker's number

    private final TierdexClient client;

    public TierdexMessageStore(MessageStorePluginContext context, MessageStore next) {
        super(context, next);
        client = makeClient(context);
    }

    /** An error here would end the broker's start. */
    private static TierdexClient makeClient(MessageStorePluginContext context) {
        TierdexSettings settings = new TierdexSettings();
        try {
            context.registerConfiguration(settings);
            TierdexClient made = new TierdexClient(settings);
            LOG.info("tierdex: queries are answered by {} as well", settings.getTierdexUrl());
            return made;
        } catch (Throwable error) {
            LOG.error("tierdex: queries are answered by this broker alone: tierdexUrl={}: {}",
                settings.getTierdexUrl(), error.toString());
            return null;
        }
    }

    @Override
    QueryMessageResult answered(Query query, Supplier<QueryMessageResult> below) {
        TierdexClient.Asked asked = ask(query);
        return withFound(below.get(), asked, query);
    }

    @Override
    CompletableFuture<QueryMessageResult> answeredLater(
        Query query, Supplier<CompletableFuture<QueryMessageResult>> below) {
        TierdexClient.Asked asked = ask(query);
        return below.get().thenApply(local -> withFound(local, asked, query));
    }

    /** Begin to ask, while the stores below are asked; null where no service is asked. */
    private TierdexClient.Asked ask(Query query) {
        try {
            return client == null ? null : client.ask(query);
        } catch (Throwable error) {
            LOG.warn("tierdex: not asked: {}", error.toString());
            return null;
        }
    }

    private QueryMessageResult withFound(QueryMessageResult local, TierdexClient.Asked asked, Query query) {
        List<Candidate> added = new ArrayList<>();
        try {
            TierdexClient.Answer answer = asked == null ? null : asked.await();
            if (answer == null) {
                return local;
            }
            Map<String, Boolean> known = new HashMap<>();
            if (local != null) {
                local.getMessageMapedList().forEach(each -> known.put(identity(decoded(each.getByteBuffer())), true));
            }
            for (TierdexClient.Place place : answer.places()) {
                keep(read(query, place), known, added);
            }
            for (TierdexClient.Kept kept : answer.kept()) {
                keep(rebuilt(query, kept), known, added);
            }
        } catch (Throwable error) {
            LOG.warn("tierdex: {}: answered by this broker alone: {}", query, error.toString());
            added.forEach(each -> each.bytes.release());
            return local;
        }
        return added.isEmpty() && local != null ? local : joined(local, added, query.maxNum());
    }

    private static void keep(Candidate found, Map<String, Boolean> known, List<Candidate> added) {
        if (found == null) {
            return;
        }
        if (known.putIfAbsent(identity(found.message), true) == null) {
            added.add(found);
        } else {
            found.bytes.release();
        }
    }

    /** The message at a place, if this broker has it and it has the key; of another broker's place it has not. */
    private Candidate read(Query query, TierdexClient.Place place) {
        GetMessageResult got =
            next.getMessage(GROUP, query.topic(), place.queue() & QUEUE_MASK, place.offset(), 1, null);
        if (got == null) {
            return null;
        }
        Candidate found = null;
        for (SelectMappedBufferResult bytes : got.getMessageMapedList()) {
            MessageExt message = decoded(bytes.getByteBuffer());
            if (found == null && message != null && message.getQueueOffset() == place.offset() && hasKey(message, query.key())) {
                found = new Candidate(message, bytes);
            } else {
                bytes.release();
            }
        }
        return found;
    }

    /** A message of Tierdex's log in the form in which a broker stores messages. */
    private Candidate rebuilt(Query query, TierdexClient.Kept kept) throws Exception {
        MessageExt message = new MessageExt();
        message.setTopic(query.topic());
        message.setBody(kept.body());
        message.setQueueId(kept.queue() & QUEUE_MASK);
        message.setQueueOffset(kept.offset());
        message.setStoreTimestamp(kept.timestamp());
        message.setBornTimestamp(kept.born());
        InetSocketAddress broker = new InetSocketAddress(
            context.getBrokerConfig().getBrokerIP1(), context.getBrokerConfig().getListenPort());
        message.setBornHost(broker);
        message.setStoreHost(broker);
        MessageAccessor.setProperties(message, new HashMap<>(kept.properties()));
        if (!hasKey(message, query.key())) {
            return null;
        }
        byte[] bytes = MessageDecoder.encode(message, false);
        return new Candidate(message, new SelectMappedBufferResult(0, ByteBuffer.wrap(bytes), bytes.length, null));
    }

    /** The local answer with what was found, the newest first, as RocketMQ's own index answers. */
    private static QueryMessageResult joined(QueryMessageResult local, List<Candidate> added, int maxNum) {
        QueryMessageResult all = new QueryMessageResult();
        if (local != null) {
            all.setIndexLastUpdateTimestamp(local.getIndexLastUpdateTimestamp());
            all.setIndexLastUpdatePhyoffset(local.getIndexLastUpdatePhyoffset());
            local.getMessageMapedList().forEach(each -> added.add(new Candidate(decoded(each.getByteBuffer()), each)));
        }
        added.sort(Comparator.comparingLong((Candidate each) ->
            each.message == null ? Long.MIN_VALUE : each.message.getStoreTimestamp()).reversed());
        for (int n = 0; n < added.size(); n++) {
            if (n < maxNum) {
                all.addMessage(added.get(n).bytes);
            } else {
                added.get(n).bytes.release();
            }
        }
        return all;
    }

    private static boolean hasKey(MessageExt message, String key) {
        String keys = message.getKeys();
        return key.equals(message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX))
            || keys != null && Arrays.asList(keys.split(MessageConst.KEY_SEPARATOR)).contains(key);
    }

    /** What tells a message from others: its unique key; without one its place. */
    private static String identity(MessageExt message) {
        if (message == null) {
            return "";
        }
        String unique = message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
        return (unique == null ? "" : unique) + ' ' + message.getQueueId() + ' '
            + (unique == null ? message.getQueueOffset() : "");
    }

    private static MessageExt decoded(ByteBuffer bytes) {
        return MessageDecoder.decode(bytes.duplicate(), false, false);
    }

    private record Candidate(MessageExt message, SelectMappedBufferResult bytes) { }
}
