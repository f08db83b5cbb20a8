import { findEndpoints, issueCode } from '../admin-client.ts'
import type { Run } from '../command.ts'
import { printResult } from '../print.ts'

/** `sallyport ui`: one link per component. Each can be opened once. */
export const ui: Run = async (args, io) => {
  const endpoints = findEndpoints(args, io)
  const links = await Promise.all(
    endpoints.map(async endpoint => ({
      component: endpoint.component,
      url: `${endpoint.url}/#${await issueCode(endpoint)}`,
    })),
  )
  return printResult(args, io, links, () =>
    links.map(({ component = '', url }) => `${component.padEnd(8)}${url}\n`.trimStart()).join(''),
  )
}
