/** The router as a service. It gets requests from an ingress controller, or from a tunnel client with `target: 'http://router:8081'`. */
import { serveRouter } from 'sallyport/router'

const { PORT = '8081', API = 'http://127.0.0.1:3017' } = process.env

await using service = await serveRouter({
  port: Number(PORT),
  routes: {
    routes: [
      { name: 'api', match: { path: '/api' }, target: API, rewrite: { stripPrefix: '/api' } },
      { name: 'health', match: { path: '/healthz' }, answer: { status: 200, body: 'ok' } },
    ],
  },
  trustedProxies: ['127.0.0.0/8', '::1/128'], // whose X-Forwarded-For is trusted
})

console.log(`listening on http://${service.address.host}:${service.address.port}`)
await new Promise(resolve => process.once('SIGINT', resolve).once('SIGTERM', resolve))
