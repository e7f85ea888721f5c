// Command chaos kills, stops and cuts off the real program, and checks that nothing is lost. It is not part of the program.
package main

func main() {}
