package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"hob"
	"hob/client"
)

// An agent is made and run, and its run watched to the end. The model scripted plays the script in the agent's settings, so
// this needs no provider.
func Example() {
	address, key, stop := exampleServer() // as http://127.0.0.1:8787, and what hob key create prints
	defer stop()

	ctx := context.Background()
	c := client.New(address, key)
	defer c.Close()
	name, model := "greeter", "scripted"
	agent, err := c.CreateAgent(ctx, client.AgentInput{
		Name: &name, Model: &model, Settings: json.RawMessage(`{"script": "text: Hello, {{message}}!"}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for event, err := range c.RunStream(ctx, agent.ID, client.RunRequest{Message: "Ada"}) {
		if err != nil {
			fmt.Println(err) // of the connection or the request; a run that fails says so in its complete event
			return
		}
		if event.Type != hob.EventComplete {
			continue
		}
		var end hob.CompleteEvent
		if err := json.Unmarshal(event.Data, &end); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(end.Status, end.Steps, end.Content)
	}
	// Output: completed 1 Hello, Ada!
}

// A program stops in the middle of a run and comes back. What it has to keep is the run's id, which is in every event, and
// the number of the last event it has seen. The idempotency key makes the start safe to repeat where even the first event
// did not arrive, and "continue" lets the run go on however long nobody reads it.
func ExampleClient_Events() {
	address, key, stop := exampleServer()
	defer stop()

	ctx := context.Background()
	c := client.New(address, key)
	defer c.Close()
	name, model := "slow", "scripted"
	agent, err := c.CreateAgent(ctx, client.AgentInput{
		Name: &name, Model: &model, Settings: json.RawMessage(`{"script": "delay: 200ms\ntext: Still here, {{message}}."}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	request := client.RunRequest{
		Message: "Ada", IdempotencyKey: "order-17", // your own name for what you want, or a random text that you keep
		Tuning: hob.Tuning{OnDisconnect: hob.DisconnectContinue},
	}
	var seen hob.EventHead
	for event, err := range c.RunStream(ctx, agent.ID, request) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := json.Unmarshal(event.Data, &seen); err != nil {
			fmt.Println(err)
			return
		}
		break // the program ends here, with seen.Run and seen.Seq on its disk
	}

	for event, err := range c.Events(ctx, seen.Run, seen.Seq) {
		if err != nil {
			fmt.Println(err) // Unavailable: no server for longer than c.Patience; try again later, from the last number seen
			return
		}
		if event.Type == hob.EventComplete {
			var end hob.CompleteEvent
			if err := json.Unmarshal(event.Data, &end); err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println(end.Status, end.Content)
		}
	}

	// The same request finds the same run, and gives its events from the first.
	for event, err := range c.RunStream(ctx, agent.ID, request) {
		if err != nil {
			fmt.Println(err)
			return
		}
		var found hob.EventHead
		if err := json.Unmarshal(event.Data, &found); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(event.Seq, found.Run == seen.Run)
		break
	}
	// Output:
	// completed Still here, Ada.
	// 1 true
}

// The kind of an error tells what to do; its code is finer, and its text is for people.
func ExampleClient_Agent() {
	address, key, stop := exampleServer()
	defer stop()

	c := client.New(address, key)
	defer c.Close()
	_, err := c.Agent(context.Background(), "11111111-2222-3333-4444-555555555555")
	fmt.Println(hob.KindOf(err) == hob.NotFound, err)
	// Output: true Agent not found
}

// exampleServer starts a server of its own for one example.
func exampleServer() (address, key string, stop func()) {
	dir, err := os.MkdirTemp("", "hob-example-")
	if err != nil {
		fmt.Println(err)
		return "", "", func() {}
	}
	address, key, stopServer, err := serveIn(dir)
	if err != nil {
		fmt.Println(err)
		stopServer = func() {}
	}
	return address, key, func() { stopServer(); _ = os.RemoveAll(dir) }
}
