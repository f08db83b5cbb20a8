module sallyport.example/mux

go 1.23

require github.com/hashicorp/yamux v0.1.2
