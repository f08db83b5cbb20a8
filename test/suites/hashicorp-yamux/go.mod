module sallyport.example/hashicorp-yamux

go 1.19

require github.com/hashicorp/yamux v0.1.2
