module sallyport.example/interop

go 1.19

require (
	github.com/coder/websocket v1.8.12
	github.com/hashicorp/yamux v0.1.2
)
