// SPDX-License-Identifier: Apache-2.0

// Command scene sends one message to a topic that does not exist yet, and starts a push consumer right after it.
//
// It prints what happened, one JSON object a line with the milliseconds of each step, and ends with 1 when the send or
// the consumer's start is refused, or when the message has not come within the time given.
//
// With -every it works on a topic that exists, until its standard input ends: it sends numbered messages and consumes
// them. It goes on after a failed send. At the end it prints one JSON object with the counts.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var (
	namesrv = flag.String("namesrv", "127.0.0.1:9876", "addresses of NameServers, with semicolons")
	topic   = flag.String("topic", "", "topic that does not exist yet; with -every: topic that exists")
	body    = flag.String("body", "made by its first message", "what is sent")
	user    = flag.String("access-key", "", "sign as this account")
	secret  = flag.String("secret-key", "", "with its key")
	every   = flag.Duration("every", 0, "pause between two messages; 0: send one message to a new topic")
	within  = flag.Duration("within", time.Minute, "how long a send, and the message, may take")
)

func main() {
	flag.Parse()
	rlog.SetLogLevel("warn")
	run := scene
	if *every > 0 {
		run = stream
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// clients makes a producer and a push consumer. The consumer has an instance of its own: one that shares the producer's
// would find the route that a send has left there.
func clients() (rocketmq.Producer, rocketmq.PushConsumer, error) {
	credentials := primitive.Credentials{AccessKey: *user, SecretKey: *secret}
	resolver := primitive.NewPassthroughResolver(strings.Split(*namesrv, ";"))
	sender, err := rocketmq.NewProducer(
		producer.WithNsResolver(resolver),
		producer.WithCredentials(credentials),
		producer.WithGroupName("go-producers-"+*topic),
		producer.WithInstanceName("producer"),
		producer.WithRetry(0),
		producer.WithSendMsgTimeout(*within),
	)
	if err != nil {
		return nil, nil, fmt.Errorf("producer: %w", err)
	}
	reader, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(resolver),
		consumer.WithCredentials(credentials),
		consumer.WithGroupName("go-consumers-"+*topic),
		consumer.WithInstance("consumer"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, nil, fmt.Errorf("consumer: %w", err)
	}
	return sender, reader, nil
}

func scene() error {
	sender, reader, err := clients()
	if err != nil {
		return err
	}
	if err := sender.Start(); err != nil {
		return fmt.Errorf("producer's start: %w", err)
	}
	received := make(chan string, 16)
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

// stream sends and consumes numbered messages until the standard input ends, and then waits for those that are missing.
func stream() error {
	sender, reader, err := clients()
	if err != nil {
		return err
	}
	var lock sync.Mutex
	missing := map[string]bool{}
	var failures []string
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, message := range messages {
			delete(missing, string(message.Body))
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := reader.Subscribe(*topic, consumer.MessageSelector{}, take); err != nil {
		return fmt.Errorf("subscription: %w", err)
	}
	if err := sender.Start(); err != nil {
		return fmt.Errorf("producer's start: %w", err)
	}
	if err := reader.Start(); err != nil {
		return fmt.Errorf("consumer's start: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	sent, longest := 0, time.Duration(0)
	for working := true; working; {
		text := fmt.Sprintf("%s %d", *body, sent+len(failures))
		lock.Lock()
		missing[text] = true // before it is sent: it may arrive before the send returns
		lock.Unlock()
		began := time.Now()
		result, err := sender.SendSync(context.Background(), primitive.NewMessage(*topic, []byte(text)))
		if took := time.Since(began); took > longest {
			longest = took
		}
		if err == nil && result.Status == primitive.SendOK {
			sent++
		} else {
			lock.Lock()
			delete(missing, text)
			lock.Unlock()
			failures = append(failures, fmt.Sprintf("%s: %v %v", text, result, err))
		}
		select {
		case <-ended:
			working = false
		case <-time.After(*every):
		}
	}
	left := func() int {
		lock.Lock()
		defer lock.Unlock()
		return len(missing)
	}
	for until := time.Now().Add(*within); left() > 0 && time.Now().Before(until); {
		time.Sleep(100 * time.Millisecond)
	}
	line, _ := json.Marshal(map[string]any{
		"sent": sent, "failures": failures, "longestMs": longest.Milliseconds(), "notReceived": left(),
	})
	fmt.Println(string(line))
	return nil
}

// say prints a step and how long it took since a time; it returns the time now.
func say(step string, since time.Time, text string) time.Time {
	now := time.Now()
	line, _ := json.Marshal(map[string]any{"step": step, "ms": now.Sub(since).Milliseconds(), "body": text})
	fmt.Println(string(line))
	return now
}
