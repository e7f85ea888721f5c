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
