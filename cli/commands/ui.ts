import { type Endpoint, findEndpoints, issueCode, printAll, view } from '../admin-client.ts'
import type { Run } from '../command.ts'
import { printResult } from '../print.ts'
import { asRow, printable, table } from '../table.ts'

/** `sallyport ui`: one link per component. Each can be opened once. */
export const ui: Run = async (args, io) =>
  await printAll(findEndpoints(args, io).map(linkTo), io, links => {
    printResult(args, io, links, () =>
      table(links, {
        component: row => printable(row.component),
        name: row => printable(row.name),
        link: row => printable(row.url),
      })
        .slice(1)
        .map(line => `${line}\n`)
        .join(''),
    )
  })

/** `name` tells components of one kind apart: the runtime of a client, the replica of a server, the address of a router. */
async function linkTo(endpoint: Endpoint) {
  const [code, status] = await Promise.all([
    issueCode(endpoint),
    view(endpoint, '/status').then(asRow, () => asRow({})),
  ])
  const { component = endpoint.component, runtime, replica, address } = status
  return { component, name: runtime || replica || address, url: `${endpoint.url}/#${code}` }
}
