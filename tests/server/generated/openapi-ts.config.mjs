export default { input: "openapi.json", output: { path: "hey", module: { extension: ".js" } } };
