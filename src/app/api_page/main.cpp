// Runs in the build: reads api/openapi.yaml and writes a C++ file with the contract itself, the
// list of its routes, and a page for people. So the server needs no YAML parser, and the page no
// script.
//
//   doorbuster_api_page api/openapi.yaml embedded_api.cpp

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::array<std::string_view, 5> kMethods{"get", "post", "put", "patch", "delete"};

constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark; --line: #8885; --soft: #8882; --accent: #0b57d0; }
@media (prefers-color-scheme: dark) { :root { --accent: #a8c7fa; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
a { color: var(--accent); }
h2 { border-bottom: 1px solid var(--line); margin-top: 3rem; padding-bottom: .3rem; }
h3 { margin: 2.5rem 0 .3rem; font-size: 1.05rem; }
h4 { margin: 1rem 0 .3rem; font-size: .95rem; }
code, pre { font: .875em/1.5 ui-monospace, monospace; }
code { background: var(--soft); border-radius: 4px; padding: .1em .3em; overflow-wrap: anywhere; }
pre { background: var(--soft); border-radius: 6px; overflow-x: auto; padding: .6rem .8rem; }
h3 code { font-size: 1rem; }
.method { border: 1px solid var(--line); border-radius: 4px; display: inline-block; font: 700 .8rem ui-monospace, monospace;
  min-width: 4.5rem; padding: .1rem .4rem; text-align: center; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem .35rem 0; text-align: left; vertical-align: top; }
th { font-size: .85rem; }
td p { margin: 0 0 .3rem; }
nav ul { list-style: none; padding: 0; }
nav li { padding: .1rem 0; }
.note { opacity: .8; }
)css";

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// The little Markdown that the contract uses inside a line: `code` and **bold**.
std::string inline_text(std::string_view text) {
  std::string out;
  bool code = false;
  bool bold = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '`') {
      out += code ? "</code>" : "<code>";
      code = !code;
    } else if (!code && text.substr(i, 2) == "**") {
      out += bold ? "</strong>" : "<strong>";
      bold = !bold;
      ++i;
    } else {
      out += escape(text.substr(i, 1));
    }
  }
  if (code || bold) throw std::runtime_error("unfinished ` or ** in: " + std::string(text));
  return out;
}

// Empty lines part paragraphs.
std::string paragraphs(const std::string& text) {
  std::string out;
  std::string current;
  std::istringstream lines(text + "\n\n");
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) {
      current += (current.empty() ? "" : " ") + line;
    } else if (!current.empty()) {
      out += "<p>" + inline_text(current) + "</p>\n";
      current.clear();
    }
  }
  return out;
}

std::string text_of(const YAML::Node& node, const char* key) {
  const YAML::Node value = node[key];
  return value && value.IsScalar() ? value.Scalar() : std::string();
}

std::string upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

// A YAML value as JSON text, for examples. Unquoted words that JSON knows stay bare.
std::string json(const YAML::Node& node, const std::string& indent = "") {
  const std::string deeper = indent + "  ";
  std::string out;
  if (node.IsMap()) {
    for (const auto& entry : node) {
      out += fmt::format("{}{}\"{}\": {}", out.empty() ? "" : ",\n", deeper, entry.first.Scalar(),
                         json(entry.second, deeper));
    }
    return "{\n" + out + "\n" + indent + "}";
  }
  if (node.IsSequence()) {
    for (const auto& entry : node) out += (out.empty() ? "" : ", ") + json(entry, deeper);
    return "[" + out + "]";
  }
  const std::string& word = node.IsNull() ? "null" : node.Scalar();
  const bool number = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isdigit(c) != 0;
  });
  const bool quoted = node.Tag() == "!";
  if (!quoted && (number || word == "true" || word == "false" || word == "null")) return word;
  return "\"" + word + "\"";
}

class Page {
 public:
  explicit Page(YAML::Node root) : root_(std::move(root)) {}

  std::string html() {
    std::string body;
    for (const auto& tag : root_["tags"]) {
      const std::string name = tag["name"].Scalar();
      body += fmt::format("<h2 id=\"{0}\">{1}{2}</h2>\n{3}", escape(name), upper(name.substr(0, 1)),
                          escape(name.substr(1)), paragraphs(text_of(tag, "description")));
      for_each_operation([&](const std::string& path, const std::string& method,
                             const YAML::Node& item, const YAML::Node& operation) {
        if (operation["tags"][0].Scalar() == name) body += section(path, method, item, operation);
      });
    }
    body += "<h2 id=\"schemas\">Bodies</h2>\n";
    for (const auto& entry : root_["components"]["schemas"]) {
      const std::string name = entry.first.Scalar();
      if (!is_object(entry.second)) continue;
      body += fmt::format("<h3 id=\"schema-{0}\"><code>{0}</code></h3>\n{1}{2}", escape(name),
                          paragraphs(text_of(entry.second, "description")), fields(entry.second));
    }
    const YAML::Node info = root_["info"];
    return fmt::format(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<title>{0} API</title>\n<style>{1}</style>\n</head>\n<body>\n<header>\n<h1>{0} API "
        "<small>{2}</small></h1>\n<p>{3} The contract itself: <a "
        "href=\"/openapi.yaml\">openapi.yaml</a>.</p>\n</header>\n<main>\n{4}{5}{6}</main>\n"
        "</body>\n</html>\n",
        escape(info["title"].Scalar()), kStyle, escape(info["version"].Scalar()),
        escape(info["summary"].Scalar()), paragraphs(text_of(info, "description")), contents(),
        body);
  }

  std::vector<std::string> routes() {
    std::vector<std::string> list;
    for_each_operation([&](const std::string& path, const std::string& method, const YAML::Node&,
                           const YAML::Node&) { list.push_back(upper(method) + " " + path); });
    std::sort(list.begin(), list.end());
    return list;
  }

 private:
  template <class Function>
  void for_each_operation(Function function) {
    for (const auto& item : root_["paths"]) {
      for (const std::string_view method : kMethods) {
        const YAML::Node operation = item.second[std::string(method)];
        if (operation) function(item.first.Scalar(), std::string(method), item.second, operation);
      }
    }
  }

  // Follows "#/components/<kind>/<name>".
  YAML::Node resolve(const YAML::Node& node) const {
    const std::string ref = text_of(node, "$ref");
    if (ref.empty()) return node;
    YAML::Node found;
    std::istringstream parts(ref.substr(2));
    found.reset(root_);
    for (std::string part; std::getline(parts, part, '/');) {
      const YAML::Node next = found[part];
      if (!next) throw std::runtime_error("no such thing: " + ref);
      found.reset(next);
    }
    return found;
  }

  bool is_object(const YAML::Node& schema) const {
    return static_cast<bool>(schema["properties"]) || static_cast<bool>(schema["allOf"]);
  }

  std::string contents() {
    std::string out = "<nav aria-label=\"Routes\">\n<ul>\n";
    for_each_operation([&](const std::string& path, const std::string& method, const YAML::Node&,
                           const YAML::Node& operation) {
      out += fmt::format(
          "<li><a href=\"#{}\"><span class=\"method\">{}</span> <code>{}</code></a> {}</li>\n",
          escape(operation["operationId"].Scalar()), upper(method), escape(path),
          escape(operation["summary"].Scalar()));
    });
    return out + "</ul>\n</nav>\n";
  }

  // What a value may be, in words.
  std::string type(const YAML::Node& schema) const {
    if (const std::string ref = text_of(schema, "$ref"); !ref.empty()) {
      const YAML::Node target = resolve(schema);
      const std::string name = ref.substr(ref.rfind('/') + 1);
      if (is_object(target)) return fmt::format("<a href=\"#schema-{0}\">{0}</a>", escape(name));
      return type(target);
    }
    if (const YAML::Node all = schema["oneOf"]) {
      std::string out;
      for (const auto& one : all) out += (out.empty() ? "" : " or ") + type(one);
      return out;
    }
    if (const YAML::Node value = schema["const"])
      return "<code>" + escape(value.Scalar()) + "</code>";
    if (const YAML::Node values = schema["enum"]) {
      std::string out;
      for (const auto& one : values) {
        out += (out.empty() ? "<code>" : ", <code>") + escape(one.Scalar()) + "</code>";
      }
      return out;
    }
    std::string name = "object";
    if (const YAML::Node word = schema["type"]) {
      name.clear();
      if (word.IsScalar()) name = word.Scalar();
      if (word.IsSequence()) {
        for (const auto& one : word) name += (name.empty() ? "" : " or ") + one.Scalar();
      }
    }
    if (name == "array") return "list of " + type(schema["items"]);
    if (text_of(schema, "format") == "date-time") return "instant";
    const std::string low = text_of(schema, "minimum");
    const std::string high = text_of(schema, "maximum");
    if (!low.empty() && !high.empty()) return fmt::format("{} {} to {}", name, low, high);
    if (!low.empty()) return fmt::format("{} from {}", name, low);
    const std::string shortest = text_of(schema, "minLength");
    const std::string longest = text_of(schema, "maxLength");
    if (!shortest.empty() && !longest.empty()) {
      return fmt::format("{}, {} to {} characters", name, shortest, longest);
    }
    if (const std::string pattern = text_of(schema, "pattern"); !pattern.empty()) {
      return fmt::format("{} like <code>{}</code>", name, escape(pattern));
    }
    return name;
  }

  std::string what(const YAML::Node& schema) const {
    std::string text = text_of(schema, "description");
    if (text.empty() && schema["$ref"]) {
      const YAML::Node target = resolve(schema);
      if (!is_object(target)) text = text_of(target, "description");
    }
    std::string out = paragraphs(text);
    if (const YAML::Node value = schema["default"]) {
      out += "<p>Default: <code>" + escape(value.Scalar()) + "</code></p>";
    }
    return out;
  }

  struct Field {
    std::string name;
    YAML::Node schema;
    bool required = false;
  };

  // The fields of an object, with those that allOf adds; a later one says more about an earlier
  // one.
  void collect(const YAML::Node& schema_or_ref, std::vector<Field>& out) const {
    const YAML::Node schema = resolve(schema_or_ref);
    if (const YAML::Node all = schema["allOf"]) {
      for (const auto& part : all) collect(part, out);
    }
    std::vector<std::string> required;
    if (const YAML::Node names = schema["required"]) {
      for (const auto& name : names) required.push_back(name.Scalar());
    }
    if (const YAML::Node properties = schema["properties"]) {
      for (const auto& entry : properties) {
        Field field{entry.first.Scalar(), entry.second, false};
        field.required = std::find(required.begin(), required.end(), field.name) != required.end();
        const auto known = std::find_if(
            out.begin(), out.end(), [&](const Field& other) { return other.name == field.name; });
        if (known == out.end()) {
          out.push_back(std::move(field));
        } else {
          known->schema.reset(field.schema);
          known->required = known->required || field.required;
        }
      }
    }
  }

  std::string fields(const YAML::Node& schema) const {
    std::vector<Field> list;
    collect(schema, list);
    if (list.empty()) return {};
    std::string out =
        "<div class=\"scroll\"><table>\n<tr><th>field</th><th>what</th><th></th></tr>\n";
    for (const Field& field : list) {
      out += fmt::format("<tr><td><code>{}</code>{}</td><td>{}</td><td>{}</td></tr>\n",
                         escape(field.name),
                         field.required ? "" : " <span class=\"note\">optional</span>",
                         type(field.schema), what(field.schema));
    }
    return out + "</table></div>\n";
  }

  std::string content(const YAML::Node& node) const {
    std::string out;
    for (const auto& media : node["content"]) {
      const std::string name = media.first.Scalar();
      const YAML::Node schema = media.second["schema"];
      if (name != "application/json") out += "<p><code>" + escape(name) + "</code></p>\n";
      if (const YAML::Node inner = schema["contentSchema"]) {
        out += "<p>" + type(inner) + "</p>\n";
      } else if (schema["$ref"]) {
        out += "<p>" + type(schema) + "</p>\n";
      } else {
        const std::string table = fields(schema);
        const bool empty = table.empty() && text_of(schema, "type") == "object";
        out += empty ? "<p>An empty object.</p>\n" : table;
      }
      if (const YAML::Node example = media.second["example"]) {
        out += "<pre>" + escape(example.IsScalar() ? example.Scalar() : json(example)) + "</pre>\n";
      }
    }
    return out;
  }

  std::string parameters(const YAML::Node& item, const YAML::Node& operation) const {
    std::string rows;
    for (const YAML::Node& list : {item["parameters"], operation["parameters"]}) {
      if (!list) continue;
      for (const auto& entry : list) {
        const YAML::Node parameter = resolve(entry);
        rows += fmt::format(
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td><td>{}{}</td></tr>\n",
            escape(parameter["name"].Scalar()), escape(parameter["in"].Scalar()),
            type(parameter["schema"]), what(parameter), default_of(parameter["schema"]));
      }
    }
    if (rows.empty()) return {};
    return "<h4>Parameters</h4>\n<div class=\"scroll\"><table>\n"
           "<tr><th>name</th><th>in</th><th>what</th><th></th></tr>\n" +
           rows + "</table></div>\n";
  }

  static std::string default_of(const YAML::Node& schema) {
    const YAML::Node value = schema["default"];
    return value ? "<p>Default: <code>" + escape(value.Scalar()) + "</code></p>" : std::string();
  }

  std::string section(const std::string& path, const std::string& method, const YAML::Node& item,
                      const YAML::Node& operation) const {
    std::string who = "No token";
    for (const auto& scheme : operation["security"]) {
      for (const auto& entry : scheme) who = "Token of a " + entry.first.Scalar();
    }
    if (who == "Token of a administrator") who = "Token of an administrator";
    std::string out = fmt::format(
        "<section>\n<h3 id=\"{}\"><span class=\"method\">{}</span> <code>{}</code></h3>\n"
        "<p>{}. <span class=\"note\">{}.</span></p>\n{}{}",
        escape(operation["operationId"].Scalar()), upper(method), escape(path),
        inline_text(operation["summary"].Scalar()), who,
        paragraphs(text_of(operation, "description")), parameters(item, operation));
    if (const YAML::Node request = operation["requestBody"]) {
      out += fmt::format("<h4>Body{}</h4>\n{}",
                         text_of(request, "required") == "true" ? "" : " (optional)",
                         content(request));
    }
    out += "<h4>Answers</h4>\n<div class=\"scroll\"><table>\n";
    for (const auto& entry : operation["responses"]) {
      const YAML::Node response = resolve(entry.second);
      std::string retry;
      if (response["headers"] && response["headers"]["Retry-After"]) {
        retry = "<p class=\"note\">With <code>Retry-After</code>.</p>\n";
      }
      // The usual refusals carry nothing but code and message, so their row stays short.
      const bool shared = static_cast<bool>(entry.second["$ref"]);
      out += fmt::format("<tr><td><strong>{}</strong></td><td>{}{}{}</td></tr>\n",
                         escape(entry.first.Scalar()), paragraphs(text_of(response, "description")),
                         retry, shared ? codes(response) : content(response));
    }
    return out + "</table></div>\n</section>\n";
  }

  std::string codes(const YAML::Node& response) const {
    std::vector<Field> list;
    collect(response["content"]["application/json"]["schema"], list);
    for (const Field& field : list) {
      if (field.name == "error") return "<p>" + type(field.schema) + "</p>";
    }
    return {};
  }

  YAML::Node root_;
};

// One literal for each piece: compilers bound the length of one literal, and none needs escaping
// this way.
std::string literal(std::string_view text) {
  constexpr std::size_t kPiece = 8 * 1024;
  std::string out;
  for (std::size_t begin = 0; begin < text.size(); begin += kPiece) {
    out += "\n    R\"doorbuster(" + std::string(text.substr(begin, kPiece)) + ")doorbuster\"";
  }
  return out;
}

void write(const std::string& from, const std::string& to) {
  std::ifstream in(from, std::ios::binary);
  std::stringstream yaml;
  yaml << in.rdbuf();
  if (!in) throw std::runtime_error(from + " cannot be read");
  Page page(YAML::Load(yaml.str()));
  const std::vector<std::string> routes = page.routes();

  std::string list;
  for (const std::string& route : routes) list += fmt::format("    \"{}\",\n", route);
  const std::string text = fmt::format(
      "// Made from api/openapi.yaml by src/app/api_page.\n"
      "#include <array>\n#include \"app/docs_page.hpp\"\n\n"
      "namespace doorbuster::app {{\n"
      "namespace {{\n"
      "constexpr std::string_view kYaml ={};\n"
      "constexpr std::string_view kHtml ={};\n"
      "constexpr std::array<std::string_view, {}> kRoutes{{\n{}}};\n"
      "}}  // namespace\n\n"
      "std::string_view openapi_yaml() {{ return kYaml; }}\n"
      "std::string_view docs_html() {{ return kHtml; }}\n"
      "std::span<const std::string_view> openapi_routes() {{ return kRoutes; }}\n"
      "}}  // namespace doorbuster::app\n",
      literal(yaml.str()), literal(page.html()), routes.size(), list);
  std::ofstream out(to, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw std::runtime_error(to + " cannot be written");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: doorbuster_api_page OPENAPI.yaml OUT.cpp\n");
    return 2;
  }
  try {
    write(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[1], error.what());
    return 1;
  }
}
