package tierdex.example;

import java.net.URI;
import java.util.List;
import tierdex.client.ApiClient;
import tierdex.client.ApiException;
import tierdex.client.api.EntriesApi;
import tierdex.client.model.Answer;
import tierdex.client.model.EntriesToPut;
import tierdex.client.model.EntryToPut;
import tierdex.client.model.Lookup;
import tierdex.client.model.Lookups;
import tierdex.client.model.Timestamp1;

/**
 * Tells a service where the message of an order lies, and finds it again.
 *
 *   java -cp ... tierdex.example.PutAndFind http://127.0.0.1:8080 ORDER-8841 [API_KEY]
 */
public final class PutAndFind {
    public static void main(String[] args) throws ApiException {
        ApiClient service = new ApiClient();
        service.updateBaseUri(URI.create(args[0]).toString());
        if (args.length > 2) {
            service.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + args[2]));
        }
        EntriesApi entries = new EntriesApi(service);

        EntryToPut order = new EntryToPut().topic("orders").keys(List.of(args[1])).queueId(0).offset(4096L).size(220L)
            .timestamp(new Timestamp1(System.currentTimeMillis()));
        entries.putEntries(new EntriesToPut().entries(List.of(order)), "os");

        Lookups wanted = new Lookups().lookups(List.of(new Lookup().topic("orders").key(args[1])));
        Answer answer = entries.lookManyUp(wanted, null, null, null, null, null, null).getAnswers().get(0);
        answer.getEntries().forEach(each -> System.out.println(each.getTopic() + " " + each.getOffset()));
        if (!answer.getComplete()) { // an empty answer means "never" only if it is complete
            System.out.println("some of the index could not be read: " + answer.getMissing());
        }
    }
}
