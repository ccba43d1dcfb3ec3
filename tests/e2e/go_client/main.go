// SPDX-License-Identifier: Apache-2.0

// Command scene sends one message to a topic that does not exist yet, and starts a push consumer right after it.
//
// It prints what happened, one JSON object a line with the milliseconds of each step, and ends with 1 when the send or
// the consumer's start is refused, or when the message has not come within the time given.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var (
	namesrv = flag.String("namesrv", "127.0.0.1:9876", "address of the NameServer")
	topic   = flag.String("topic", "", "topic that does not exist yet")
	body    = flag.String("body", "made by its first message", "what is sent")
	user    = flag.String("access-key", "", "sign as this account")
	secret  = flag.String("secret-key", "", "with its key")
	within  = flag.Duration("within", time.Minute, "how long a send, and the message, may take")
)

func main() {
	flag.Parse()
	rlog.SetLogLevel("warn")
	if err := scene(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func scene() error {
	credentials := primitive.Credentials{AccessKey: *user, SecretKey: *secret}
	resolver := primitive.NewPassthroughResolver([]string{*namesrv})
	sender, err := rocketmq.NewProducer(
		producer.WithNsResolver(resolver),
		producer.WithCredentials(credentials),
		producer.WithGroupName("go-producers-"+*topic),
		producer.WithInstanceName("producer"),
		producer.WithRetry(0),
		producer.WithSendMsgTimeout(*within),
	)
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	if err := sender.Start(); err != nil {
		return fmt.Errorf("producer's start: %w", err)
	}
	received := make(chan string, 16)
	// With an instance of its own: one that shares the producer's would find the route that the send has left there.
	reader, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(resolver),
		consumer.WithCredentials(credentials),
		consumer.WithGroupName("go-consumers-"+*topic),
		consumer.WithInstance("consumer"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			received <- string(message.Body)
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := reader.Subscribe(*topic, consumer.MessageSelector{}, take); err != nil {
		return fmt.Errorf("subscription: %w", err)
	}

	began := time.Now()
	result, err := sender.SendSync(context.Background(), primitive.NewMessage(*topic, []byte(*body)))
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if result.Status != primitive.SendOK {
		return fmt.Errorf("send: status %d", result.Status)
	}
	began = say("sent", began, "")
	if err := reader.Start(); err != nil {
		return fmt.Errorf("consumer's start: %w", err)
	}
	say("started", began, "")
	select {
	case text := <-received:
		say("received", began, text)
	case <-time.After(*within):
		return fmt.Errorf("nothing received within %s", *within)
	}
	return nil
}

// say prints a step and how long it took since a time; it returns the time now.
func say(step string, since time.Time, text string) time.Time {
	now := time.Now()
	line, _ := json.Marshal(map[string]any{"step": step, "ms": now.Sub(since).Milliseconds(), "body": text})
	fmt.Println(string(line))
	return now
}
