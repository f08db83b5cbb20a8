/** A function with the web's Request and Response answers the requests that come down the tunnel. */
import { readFile } from 'node:fs/promises'
import { connect } from 'sallyport/client'

const { SERVER = 'wss://127.0.0.1:8443', TOKEN = 'token', CA = 'certs/ca.pem' } = process.env

await using tunnel = await connect({
  url: SERVER,
  token: () => readFile(TOKEN, 'utf8'), // called again when a third of the last token's lifetime is left
  ca: await readFile(CA),
  target: async request => {
    const { pathname } = new URL(request.url)
    if (pathname === '/echo') return new Response(request.body) // streams in both directions
    return Response.json({ hello: 'from behind the firewall', caller: request.headers.get('x-forwarded-for') })
  },
  on: {
    refused: ({ reason }) => console.error(reason),
    reconnecting: ({ reason, inMs }) => console.error(`${reason}; next attempt in ${Math.round(inMs)} ms`),
  },
})

console.log(`connected as ${tunnel.stats().runtime}`)
await new Promise(resolve => process.once('SIGINT', resolve).once('SIGTERM', resolve))
// `await using` drains here: exchanges in progress complete, then the sessions close.
