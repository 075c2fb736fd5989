/* Eclipse Paho for C: publishes at each quality, and prints what comes back. Arguments: port, version (4 or 5). */
#include <MQTTClient.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_MS 120000L

static void check(int wrong, const char *what) {
    if (wrong) {
        fprintf(stderr, "%s: %d\n", what, wrong);
        exit(1);
    }
}

int main(int argc, char **argv) {
    char address[64];
    int version = argc > 2 ? atoi(argv[2]) : 4;
    snprintf(address, sizeof address, "tcp://127.0.0.1:%s", argc > 1 ? argv[1] : "1883");
    MQTTClient client;
    MQTTClient_createOptions creating = MQTTClient_createOptions_initializer;
    creating.MQTTVersion = version;
    check(MQTTClient_createWithOptions(&client, address, version == 5 ? "c-5" : "c-4", MQTTCLIENT_PERSISTENCE_NONE, NULL, &creating), "create");
    if (version == 5) {
        MQTTClient_connectOptions options = MQTTClient_connectOptions_initializer5;
        MQTTResponse answer = MQTTClient_connect5(client, &options, NULL, NULL);
        check(answer.reasonCode, "connect");
        MQTTResponse_free(answer);
        answer = MQTTClient_subscribe5(client, "raw/+", 1, NULL, NULL);
        check(answer.reasonCode != 1, "subscribe");
        MQTTResponse_free(answer);
    } else {
        MQTTClient_connectOptions options = MQTTClient_connectOptions_initializer;
        options.cleansession = 1;
        check(MQTTClient_connect(client, &options), "connect");
        check(MQTTClient_subscribe(client, "raw/+", 1), "subscribe");
    }
    for (int qos = 0; qos < 3; qos++) {
        char message[32];
        int length = snprintf(message, sizeof message, "c %d", qos);
        MQTTClient_deliveryToken token = 0;
        if (version == 5) {
            MQTTResponse answer = MQTTClient_publish5(client, "raw/hall", length, message, qos, 0, NULL, &token);
            check(answer.reasonCode, "publish");
            MQTTResponse_free(answer);
        } else {
            check(MQTTClient_publish(client, "raw/hall", length, message, qos, 0, &token), "publish");
        }
        check(MQTTClient_waitForCompletion(client, token, PATIENCE_MS), "completion");
    }
    for (int count = 0; count < 3; count++) {
        char *topic = NULL;
        int length = 0;
        MQTTClient_message *message = NULL;
        check(MQTTClient_receive(client, &topic, &length, &message, PATIENCE_MS), "receive");
        check(message == NULL, "nothing came");
        printf("%s %.*s\n", topic, message->payloadlen, (char *)message->payload);
        MQTTClient_freeMessage(&message);
        MQTTClient_free(topic);
    }
    if (version == 5)
        MQTTClient_disconnect5(client, 1000, MQTTREASONCODE_SUCCESS, NULL);
    else
        MQTTClient_disconnect(client, 1000);
    MQTTClient_destroy(&client);
    return 0;
}
